"""What `uopc tune` finds: workloads that schedules by estimate do not do well.

    python benchmarks/tuning.py              # with what was found before, if anything
    uopc tune benchmarks/tuning.py           # find it
    python benchmarks/tuning.py              # and see
    UOPC_OPT=2 python benchmarks/tuning.py

Prints milliseconds of a run: the median of the samples.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from uopc.runtime import jit
from uopc.tensor import Tensor

SAMPLES = 41

WORKLOADS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "cumsum over axis 1, 400x500": (lambda x: x.cumsum(1), [(400, 500)]),
    "product 3000x7 @ 7x900": (lambda a, b: a @ b, [(3000, 7), (7, 900)]),
}


def milliseconds(function: Callable[..., Tensor], arrays: Sequence[Tensor]) -> float:
    """The median of some runs, of which the first compiles and does not count."""
    run = jit(function)
    samples = []
    for _ in range(SAMPLES + 1):
        start = time.perf_counter()
        run(*arrays).realize()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples[1:]) * 1e3


def main(names: Sequence[str]) -> None:
    """Run those workloads whose names contain one of some words, or all."""
    rng = np.random.default_rng(0)
    for name, (function, shapes) in WORKLOADS.items():
        if names and not any(word in name for word in names):
            continue
        arrays = [Tensor(rng.standard_normal(s, dtype=np.float32)) for s in shapes]
        print(f"{name:<40} {milliseconds(function, arrays):8.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
