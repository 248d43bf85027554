"""What starting costs: the first training step with an empty and with a filled cache.

Run from the root of the project::

    python benchmarks/start.py            # three rounds of each
    python benchmarks/start.py 10         # more of them

Each row is a fresh process that trains the network of `examples/digits.py` for one
step, with made-up images. The table has the least of some rounds, in milliseconds of
the wall clock: a compiler's work is in processes of its own. Nothing here fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COLUMNS = ("imports", "first step", "second step")


def child() -> None:
    """One training step, and another one; prints the seconds of each part."""
    begun = time.perf_counter()
    from uopc.backend_c.cache import stats
    from uopc.nn import AdamW, Linear, parameters
    from uopc.tensor import Tensor

    times = [time.perf_counter() - begun]
    rng = np.random.default_rng(0)
    images = rng.random((32, 64), np.float32)
    labels = rng.integers(0, 10, 32).astype(np.int32)
    first, second, last = Linear(64, 256), Linear(256, 64), Linear(64, 10)
    optimizer = AdamW(parameters([first, second, last]), 5e-3)
    for _ in range(2):
        begun = time.perf_counter()
        x = second(first(Tensor(images)).relu()).relu()
        loss = last(x).cross_entropy(Tensor(labels))
        optimizer.zero_grad()
        loss.backward(optimizer.params)
        optimizer.step(loss)
        loss.item()
        times.append(time.perf_counter() - begun)
    runs = stats.compiler_runs
    print(json.dumps([*(1000 * t for t in times), runs]))


def row(rounds: int, keep: bool) -> list[float]:
    """The least of each column, and the compilers started, over some processes."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for k in range(rounds + keep):
            cache = Path(folder, "kept" if keep else str(k))
            environment = {**os.environ, "UOPC_CACHE_DIR": str(cache)}
            command = [sys.executable, __file__, "--child"]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            found.append(json.loads(done.stdout))
    return [min(column) for column in zip(*found[keep:], strict=True)]


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'cache':8}" + "".join(f"{c:>14}" for c in (*COLUMNS, "compilers")))
    for name, keep in (("empty", False), ("filled", True)):
        *times, runs = row(rounds, keep)
        cells = "".join(f"{t:11.1f} ms" for t in times)
        print(f"{name:8}{cells}{runs:14.0f}", flush=True)


if __name__ == "__main__":
    child() if "--child" in sys.argv else main()
