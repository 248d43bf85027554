"""Buffers, backends, memory planning and running a plan."""

from uopc.runtime.backends import (
    Backend,
    Program,
    backend_named,
    default_backend,
)
from uopc.runtime.buffers import (
    buffer_data,
    new_buffer,
    next_version,
    release,
)
from uopc.runtime.lower import lower
from uopc.runtime.memory import MemoryPlan, plan_memory
from uopc.runtime.run import realize

__all__ = [
    "Backend",
    "MemoryPlan",
    "Program",
    "backend_named",
    "buffer_data",
    "default_backend",
    "lower",
    "new_buffer",
    "next_version",
    "plan_memory",
    "realize",
    "release",
]
