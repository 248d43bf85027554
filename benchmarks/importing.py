"""What importing uopc.tensor costs beyond importing NumPy; the bound is 40 ms.

Run from the root of the project::

    python benchmarks/importing.py        # 15 rounds
    python benchmarks/importing.py 50     # more of them

Fresh processes, in turn, so that a busy machine is so for all of them. The table has
medians of the processor time (user and system) in milliseconds, and of the wall clock.
Nothing here fails.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

PROGRAMS = {
    "numpy": "import numpy",
    "uopc.tensor": "import numpy, uopc.tensor",
    "and its plugins": "import uopc.tensor, uopc.plugins as p; p.registry()",
}


def run(program: str) -> tuple[float, float]:
    """Milliseconds of processor time and of wall clock that a process takes."""
    begun = time.perf_counter()
    child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", program])
    _, status, used = os.wait4(child, 0)
    assert status == 0, program
    wall = time.perf_counter() - begun
    return 1e3 * (used.ru_utime + used.ru_stime), 1e3 * wall


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds + 1):
        for name, program in PROGRAMS.items():
            times[name].append(run(program))
    print(f"{'import':<18}{'cpu ms':>10}{'beyond':>10}{'wall ms':>10}{'beyond':>10}")
    base = [0.0, 0.0]
    for name, found in times.items():
        row = [statistics.median(column) for column in zip(*found[1:], strict=True)]
        base = row if name == "numpy" else base
        cells = "".join(
            f"{t:>10.1f}{t - b:>10.1f}" for t, b in zip(row, base, strict=True)
        )
        print(f"{name:<18}{cells}")


if __name__ == "__main__":
    main()
