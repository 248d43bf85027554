"""What fresh memory costs, and whether calls that are repeated touch any.

Run from the root of the project, on a machine that does little else::

    python benchmarks/pages.py            # everything, half a minute
    python benchmarks/pages.py repeated   # only these of touching, arrays, repeated

``touching``: milliseconds to get so many bytes, write each and let go of them: from the
system in ordinary and in huge pages, from NumPy, and from the pool; and to write them
where they are in memory already. ``arrays``: microseconds to make an array and let go
of it. ``repeated``: milliseconds and pages touched for the first time (page faults of
the process, of whatever size) in each of the first calls of the same function, on 64
MB, after one that compiles.
"""

from __future__ import annotations

import mmap
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sections import run
from uopc.dtype import f32, u8
from uopc.runtime import jit, release_memory
from uopc.runtime.buffers import empty
from uopc.tensor import Tensor

MB = 1 << 20
CALLS = 5


def faults() -> int:
    """Pages that this process has touched for the first time so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def least(work: Callable[..., object], *args: Any, rounds: int = 9) -> float:
    """The seconds that the quickest of some rounds takes."""
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work(*args)
        found.append(time.perf_counter() - begun)
    return min(found)


def mapped(nbytes: int, advice: int | None) -> Any:
    """Memory of the system, as an array."""
    memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if advice is not None:
        memory.madvise(advice)
    return np.frombuffer(memory, np.uint8)


def touching() -> None:
    """Print the table of what writing to memory costs."""
    huge = getattr(mmap, "MADV_HUGEPAGE", None)
    ways: dict[str, Callable[[int], Any]] = {
        "pages": lambda n: mapped(n, None),
        "huge": lambda n: mapped(n, huge),
        "NumPy": lambda n: np.empty(n, np.uint8),
        "pool": lambda n: empty(n, u8),
    }
    print("touching, ms" + "".join(f"{name:>10}" for name in (*ways, "written")))
    for nbytes in (MB // 16, MB // 4, MB, 2 * MB, 8 * MB, 64 * MB):
        row = [least(lambda m, n: m(n).fill(1), m, nbytes) for m in ways.values()]
        row.append(least(np.ones(nbytes, np.uint8).fill, 2))
        print(f"{nbytes >> 10:>9} KB" + "".join(f"{1e3 * t:>10.3f}" for t in row))


def arrays() -> None:
    """Print what an array costs."""

    def make(size: int) -> None:
        for _ in range(1000):
            empty(size, f32)

    print("\narrays, us")
    for size in (1, 1000, 16_000, 17_000, 1 << 24):
        print(f"{4 * size:>12,} bytes {1e3 * least(make, size):>6.2f}")


def repeated() -> None:
    """Print times and faults of calls of the same function."""
    x = Tensor(np.linspace(-1, 1, 16 * MB, dtype=np.float32)).realize()
    array = x.numpy()
    inner = jit(lambda t: (t * 2 + 1).relu())
    rows: dict[str, Callable[[], object]] = {
        "relu(2 x + 1), eager": lambda: (x * 2 + 1).relu().realize(),
        "the same under jit": lambda: inner(x),
        "sum of its rows, eager": lambda: (x * 2).reshape(4096, 4096).sum(1).realize(),
        "softmax of its rows": lambda: x.reshape(4096, 4096).softmax(1).realize(),
        "x.numpy()": x.numpy,
        "Tensor(array)": lambda: Tensor(array).realize(),
    }
    print("\nrepeated: ms (faults)" + "".join(f"{i + 1:>15}" for i in range(CALLS)))
    for name, work in rows.items():
        work()
        release_memory()
        row = []
        for _ in range(CALLS):
            begun, before = time.perf_counter(), faults()
            work()
            took, found = time.perf_counter() - begun, faults() - before
            row.append(f"{1e3 * took:.1f} ({found})")
        print(f"{name:<22}" + "".join(f"{r:>15}" for r in row), flush=True)


if __name__ == "__main__":
    run({"touching": touching, "arrays": arrays, "repeated": repeated})
