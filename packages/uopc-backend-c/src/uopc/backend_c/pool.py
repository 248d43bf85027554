"""Loading the pool, which is C, and saying how many threads it has.

It is compiled once and kept in the cache on disk like any program. A process loads it
with the first program that has parallel loops, and keeps it.
"""

from __future__ import annotations

import ctypes
import operator
import os
from pathlib import Path

from uopc.backend_c import cache, cpu
from uopc.backend_c.load import Library
from uopc.backend_c.toolchain import CompileError, CompilerNotFoundError
from uopc.uop import warn_caller

SOURCE = Path(__file__).with_name("pool.c")
MAX_THREADS = 1024
PARALLEL = "uopc_parallel"
"""The variable of a program with parallel loops: the function that runs their rounds.

It is ``void (*uopc_parallel)(void (*task)(void **, long), void **table, long rounds)``,
a plain loop until another is put there.
"""

_OPT = 1  # nothing in it is for the compiler to speed up
_EVERY = 0  # what the pool takes for all processors

_chosen: int | None = None
_loaded: dict[str, ctypes.CDLL | None] = {}


def threads() -> int:
    """How many threads share the rounds of a parallel loop, the caller's among them.

    As many as `set_threads` says, else the variable OMP_NUM_THREADS, as other libraries
    have it, else as there are processors that this process may use. The variable and
    the processors count as they are when the first loop runs, and a forked process
    looks at its processors again. Results do not depend on it.
    """
    return _wanted() or cpu.cores()


def set_threads(count: int | None = None) -> None:
    """Let parallel loops use ``count`` threads from now on; None: as at the start.

    It may be called at any time; a loop that runs keeps its threads to its end. With 1
    everything runs on the caller's thread. Raises TypeError for what is no integer,
    and ValueError for one below 1 or above 1024.
    """
    global _chosen
    if count is not None and not 1 <= operator.index(count) <= MAX_THREADS:
        raise ValueError(f"threads: expected 1 to {MAX_THREADS}, not {count}")
    _chosen = count
    _tell()


def use_pool(program: Library) -> None:
    """Let a program's parallel loops run on the pool; one without them needs none.

    Where there is no pool, which is warned of once, they stay plain loops.
    """
    variable = program.address(PARALLEL)
    if variable is None:
        return
    if "pool" not in _loaded:
        # Two threads may come here at once: the first result is kept.
        _loaded.setdefault("pool", _load())
        _tell()
    if pool := _loaded["pool"]:
        run = ctypes.cast(pool.uopc_pool_run, ctypes.c_void_p)
        ctypes.c_void_p.from_address(variable).value = run.value


def _load() -> ctypes.CDLL | None:
    try:
        # Not a `Library`, which is unloaded with its last user: workers sleep in here.
        return ctypes.CDLL(str(cache.build(SOURCE.read_text(), _OPT, is_program=False)))
    except (CompileError, CompilerNotFoundError, OSError) as error:
        reason = str(error).partition("\n")[0]
        warn_caller(f"parallel loops run on one thread: {reason}")
        return None


def _tell() -> None:
    if pool := _loaded.get("pool"):
        pool.uopc_pool_set_threads(_wanted())


def _wanted() -> int:
    """The number that was asked for, or `_EVERY`."""
    if _chosen is not None:
        return _chosen
    # It may be a list: one number for each level of nesting.
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    count = int(first) if first.isdecimal() else 0
    return min(count, MAX_THREADS) if count else _EVERY
