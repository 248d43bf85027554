"""Buffers, backends, memory planning and running a plan."""

from typing import TYPE_CHECKING

from uopc.exports import on_demand
from uopc.runtime.buffers import (
    buffer_data,
    new_buffer,
    next_version,
    release,
)
from uopc.runtime.pages import release_memory

if TYPE_CHECKING:
    from uopc.runtime.backends import (
        Backend,
        Program,
        backend_named,
        default_backend,
    )
    from uopc.runtime.counters import Stats, count, stats
    from uopc.runtime.jitting.function import Jitted, jit
    from uopc.runtime.memory import MemoryPlan, plan_memory
    from uopc.runtime.nests import Nest, lower_nest, nests_of
    from uopc.runtime.origins import record_gradient, record_lines, recording
    from uopc.runtime.passes import Lowered, lower, lower_kernel
    from uopc.runtime.profiling import KernelRun, Profile, profile
    from uopc.runtime.run import realize
    from uopc.runtime.steps import KernelWork

__all__ = [
    "Backend",
    "Jitted",
    "KernelRun",
    "KernelWork",
    "Lowered",
    "MemoryPlan",
    "Nest",
    "Profile",
    "Program",
    "Stats",
    "backend_named",
    "buffer_data",
    "count",
    "default_backend",
    "jit",
    "lower",
    "lower_kernel",
    "lower_nest",
    "nests_of",
    "new_buffer",
    "next_version",
    "plan_memory",
    "profile",
    "realize",
    "record_gradient",
    "record_lines",
    "recording",
    "release",
    "release_memory",
    "stats",
]

if not TYPE_CHECKING:
    # A tensor needs buffers; the others are imported when something is computed.
    __getattr__ = on_demand(
        __name__,
        {
            "backends": "Backend Program backend_named default_backend",
            "counters": "Stats count stats",
            "jitting.function": "Jitted jit",
            "memory": "MemoryPlan plan_memory",
            "nests": "Nest lower_nest nests_of",
            "origins": "record_gradient record_lines recording",
            "passes": "Lowered lower lower_kernel",
            "profiling": "KernelRun Profile profile",
            "run": "realize",
            "steps": "KernelWork",
        },
    )
