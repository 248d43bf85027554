"""What this machine can do, measured on the spot, so that times can be judged.

The multiply-adds that it can make in registers, and the time that it takes to do
nothing but move what a workload must move. `limits.c` has the loops; `uopc`'s compiler
compiles them.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from peers.workloads import Workload
from uopc.backend_c import cpu
from uopc.backend_c.toolchain import find_compiler

SOURCE = Path(__file__).with_name("limits.c")
REPEATS = 7
LARGE = 256 << 20
_ROUNDS = 4_000_000
_SUMS = 12
_WIDTHS = {16: "sse2", 32: "fma", 64: "avx512f"}


@functools.cache
def library() -> ctypes.CDLL:
    """The loops, compiled for this processor."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        made = Path(folder, "limits.so")
        named = any(w.startswith("-march=") for w in find_compiler().argv)
        flags = ["-O3", "-ffp-contract=fast", "-fPIC", "-shared", "-w"]
        flags += [] if named else ["-march=native"]
        command = [*find_compiler().argv, *flags, str(SOURCE), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True)
        loaded = ctypes.CDLL(str(made))
    return loaded


def widths() -> list[int]:
    """Bytes of the vectors that this processor has."""
    features = cpu.features()
    found = [b for b, feature in _WIDTHS.items() if feature in features]
    return found or [16]


def least_seconds(call: Callable[[int], object], threads: int) -> float:
    """The best of some times that ``call`` takes on each of ``threads`` at once."""
    best = float("inf")
    for _ in range(REPEATS):
        barrier = threading.Barrier(threads + 1)

        def run(which: int, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            call(which)

        workers = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
        for worker in workers:
            worker.start()
        barrier.wait()
        begun = time.perf_counter()
        for worker in workers:
            worker.join()
        best = min(best, time.perf_counter() - begun)
    return best


@functools.cache
def peak(width: int, threads: int) -> float:
    """Floating-point operations a second, with vectors of ``width`` bytes."""
    function = library()[f"peak_{width}"]
    function.argtypes = [ctypes.c_long, ctypes.c_float]
    seconds = least_seconds(lambda _: function(_ROUNDS, 0.5), threads)
    return threads * _ROUNDS * _SUMS * 2 * (width // 4) / seconds


@functools.cache
def moving(name: str, size: int, threads: int) -> float:
    """Seconds to go through ``size`` bytes once; ``name`` is read, copy or stream."""
    function = library()[f"{name}_memory"]
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    # Aligned to a page, so that a part of it is aligned too.
    part = size // threads // 4096 * 4096
    source, owner = _buffer(part * threads)
    target, other = (source, owner) if name == "read" else _buffer(part * threads)
    times = max(1, LARGE // size)

    def run(which: int) -> None:
        for _ in range(times):
            function(source + which * part, target + which * part, part)

    seconds = least_seconds(run, threads) / times
    del owner, other
    return seconds


def _buffer(size: int) -> tuple[int, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """Memory that has been written to: where a page begins, and what owns it."""
    made = np.ones(size + 4096, np.uint8)
    return (int(made.ctypes.data) + 4095) // 4096 * 4096, made


def bound(workload: Workload, threads: int) -> float:
    """The least milliseconds that a workload can take here; 0 if nothing is known."""
    seconds = 0.0
    if workload.flops:
        best = max(peak(width, threads) for width in widths())
        seconds = workload.flops / best
    if workload.written:
        ways = (moving(n, int(workload.read), threads) for n in ("copy", "stream"))
        seconds = max(seconds, min(ways))
    elif workload.read:
        seconds = max(seconds, moving("read", int(workload.read), threads))
    return 1e3 * seconds


def description(threads: Sequence[int]) -> str:
    """The processor and its limits, as Markdown."""
    title, available = cpu.name(), cpu.cores()
    lines = [f"{title}, {available} processors, {find_compiler().version}.", ""]
    names = [f"{w} B" for w in widths()]
    header = ["threads", *(f"GFLOP/s, {n}" for n in names)]
    header += [f"{n} GB/s" for n in ("read", "copy", "streaming copy")]
    lines += ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for n in threads:
        row = [f"{peak(w, n) / 1e9:.0f}" for w in widths()]
        moved = {"read": LARGE, "copy": 2 * LARGE, "stream": 2 * LARGE}
        row += [f"{b / moving(k, LARGE, n) / 1e9:.1f}" for k, b in moved.items()]
        lines.append("| " + " | ".join([str(n), *row]) + " |")
    return "\n".join(lines)
