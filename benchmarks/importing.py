"""What importing uopc.tensor costs beyond importing NumPy; the bound is 40 ms.

Run from the root of the project::

    python benchmarks/importing.py        # 15 rounds
    python benchmarks/importing.py 50     # more of them

Fresh processes, in turn, so that a busy machine is so for all of them. The table has
the modules that are loaded, and medians of the processor time (user and system) in
milliseconds, of the wall clock, and of what each round took beyond NumPy's import in
the same round. Nothing here fails.

Modules are compiled to bytecode in a first round that does not count, as pip leaves
what it installs. Where Python may not write bytecode (PYTHONDONTWRITEBYTECODE) it
compiles what it imports from a source tree each time: that is the last row, with NumPy
compiled as it was installed.

"computing" is importing and a first result of the reference backend: what importing
does not load, such as plugins, is loaded then.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

TENSOR = "import numpy, uopc.tensor"
PLUGINS = "import uopc.tensor, uopc.plugins as p; p.registry()"
COMPUTING = "from uopc.tensor import Tensor; (Tensor([1.0, 2.0]) * 2 + 1).sum().item()"
# The program, and whether bytecode is kept.
ROWS = {
    "numpy": ("import numpy", True),
    "uopc.tensor": (TENSOR, True),
    "and its plugins": (PLUGINS, True),
    "computing": (COMPUTING, True),
    "without bytecode": (TENSOR, False),
}


def environment(kept: str) -> dict[str, str]:
    """That of a process whose bytecode is in a folder, or nowhere."""
    names = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    plain = {k: v for k, v in os.environ.items() if k not in names}
    written = {"PYTHONPYCACHEPREFIX": kept} if kept else {names[0]: "1"}
    return {**plain, **written, "UOPC_BACKEND": "interp"}


def run(program: str, env: dict[str, str]) -> tuple[float, float]:
    """Milliseconds of processor time and of wall clock that a process takes."""
    begun = time.perf_counter()
    command = [sys.executable, "-c", program]
    child = os.spawnve(os.P_NOWAIT, sys.executable, command, env)
    _, status, used = os.wait4(child, 0)
    assert status == 0, program
    wall = time.perf_counter() - begun
    return 1e3 * (used.ru_utime + used.ru_stime), 1e3 * wall


def columns(found: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Processor and wall times of all rounds but the first, which wrote bytecode."""
    return [cpu for cpu, _ in found[1:]], [wall for _, wall in found[1:]]


def modules(program: str) -> int:
    """How many modules a program leaves loaded."""
    counting = f"{program}\nimport sys; print(len(sys.modules))"
    return int(subprocess.check_output([sys.executable, "-c", counting]))


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ROWS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds + 1):
            for name, (program, keep) in ROWS.items():
                times[name].append(run(program, environment(folder if keep else "")))
    heads = ("modules", "cpu ms", "beyond", "wall ms", "beyond")
    print(f"{'import':<18}" + "".join(f"{head:>10}" for head in heads))
    for name, found in times.items():
        cells = f"{modules(ROWS[name][0]):>10}"
        for here, base in zip(columns(found), columns(times["numpy"]), strict=True):
            # Of each round, as one may meet a busier machine than the next.
            beyond = [t - b for t, b in zip(here, base, strict=True)]
            cells += (
                f"{statistics.median(here):>10.1f}{statistics.median(beyond):>10.1f}"
            )
        print(f"{name:<18}{cells}")


if __name__ == "__main__":
    main()
