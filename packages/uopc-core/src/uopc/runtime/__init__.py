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
from uopc.runtime.nans import record_gradient, record_lines, recording
from uopc.runtime.profile import KernelRun, Profile, profile
from uopc.runtime.run import realize
from uopc.runtime.stats import Stats, count, stats
from uopc.runtime.steps import KernelWork

__all__ = [
    "Backend",
    "KernelRun",
    "KernelWork",
    "MemoryPlan",
    "Profile",
    "Program",
    "Stats",
    "backend_named",
    "buffer_data",
    "count",
    "default_backend",
    "lower",
    "new_buffer",
    "next_version",
    "plan_memory",
    "profile",
    "realize",
    "record_gradient",
    "record_lines",
    "recording",
    "release",
    "stats",
]
