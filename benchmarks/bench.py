"""uopc beside other frameworks: operations, training steps, start-up, memory.

Run from the root of the project, on a machine that does little else::

    python -m nox -s bench                              # uopc and NumPy
    python -m nox -s bench -- --peers --rounds 3        # and PyTorch and JAX
    python benchmarks/bench.py --workloads gelu,mlp --threads 1   # what is installed

Each figure is the median over at least a second, in a process of its own with empty
caches; of several rounds the best counts. "bound" is the time that this machine takes
at least, measured in the same run: for the multiplications, at the rate of its
registers, or to move the bytes. With one thread, a process is pinned to one processor.
A figure with ~ was taken while others used the processors.

The status is 1 if the frameworks do not compute the same, and 2 if uopc fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from peers import columns, machine, workloads
from peers.checks import disagreements
from peers.columns import Column
from peers.result import Result
from peers.suite import Settings, order, run_all, wait_until_idle
from peers.tables import Table
from peers.workloads import Workload
from uopc.backend_c import cpu

T = TypeVar("T")
FIGURES = "## Figures\n\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    names = ", ".join(w.name for w in workloads.WORKLOADS)
    add("--peers", action="store_true", help="compare with PyTorch and JAX, too")
    add("--columns", help=f"some of {', '.join(c.name for c in columns.COLUMNS)}")
    add("--workloads", help=f"some of {names}")
    add("--threads", default="2,1", help="numbers of threads; 2,1 by default")
    add("--rounds", type=int, default=1, help="processes for each figure")
    add("--repeats", type=int, default=9, help="samples of a process, at least")
    add("--seconds", type=float, default=1.0, help="of sampling, at least")
    add("--wait", type=float, default=10.0, help="seconds, for idle processors")
    add("--timeout", type=float, default=300.0, help="seconds of a process")
    what = "of a machine that is busy: processor time, comparable with one thread only"
    add("--clock", choices=("wall", "processor"), default="wall", help=what)
    add("--save", type=Path, help="add the results to this file, a line of JSON each")
    add("--table", type=Path, help="measure nothing; the table of what was saved")
    what = f"write the tables into this file, below {FIGURES.strip()!r}"
    add("--page", type=Path, help=what)
    return parser.parse_args()


def _chosen(names: str | None, known: dict[str, T], default: Sequence[str]) -> list[T]:
    wanted = names.split(",") if names else list(default)
    for name in wanted:
        if name not in known:
            sys.exit(f"there is no {name!r}; there are {', '.join(known)}")
    return [known[name] for name in wanted]


def _columns(names: str | None, peers: bool) -> list[Column]:
    """Those that were asked for, or else those that make sense on this processor."""
    default = columns.WITH_PEERS if peers else columns.ALONE
    found = _chosen(names, columns.BY_NAME, default)
    if not names:
        found = [c for c in found if not c.needs or c.needs in cpu.features()]
    for column in found:
        if not column.is_own and importlib.util.find_spec(column.package) is None:
            install = "`python -m nox -s bench -- --peers` installs it"
            sys.exit(f"{column.name} is not installed; {install}")
    return found


def _show(result: Result) -> None:
    what = f"{result.workload:15} {result.column:11} {result.threads} threads"
    if result.error:
        print(f"{what}  {result.error}", flush=True)
        return
    print(
        f"{what} {result.median:10.3f} ms, least {result.least:.3f}, first call "
        f"{result.first:.0f}, {result.memory:.0f} MB, {result.foreign:.2f} others",
        flush=True,
    )


def _text(
    chosen: Sequence[Column],
    rows: Sequence[Workload],
    results: Sequence[Result],
    threads: Sequence[int],
) -> str:
    """The machine, the versions and all tables, as Markdown."""
    table = Table(chosen, rows, results, machine.bound)
    versions = {r.column: r.version for r in results if r.version}
    shown = (f"{c.title} {versions[c.name]}" for c in chosen if c.name in versions)
    parts = [machine.description(threads), f"{', '.join(shown)}; float32."]
    for n in threads:
        parts.append(f"### {n} {'thread' if n == 1 else 'threads'}")
        parts += filter(None, (table.main(n), table.others(n)))
    lists = {"Errors": table.errors(), "Different values": disagreements(results)}
    for title, lines in lists.items():
        if lines:
            parts += [f"### {title}", "\n".join(f"* {line}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def status(results: Sequence[Result]) -> int:
    """That of the process: 1 for different values, 2 for an error of uopc."""
    if disagreements(results):
        return 1
    own = {c.name for c in columns.COLUMNS if c.is_own}
    return 2 if any(r.error and r.column in own for r in results) else 0


def write(page: Path, text: str) -> None:
    """Put a text below the heading for figures, in place of what is there."""
    old = page.read_text() if page.exists() else ""
    page.write_text(old.partition(FIGURES)[0] + FIGURES + text)


def _measured(
    a: argparse.Namespace,
    rows: Sequence[Workload],
    chosen: Sequence[Column],
    threads: Sequence[int],
) -> list[Result]:
    amount = (a.rounds, a.repeats, a.seconds, a.wait)
    settings = Settings(*amount, timeout=a.timeout, clock=a.clock)

    def seen(result: Result) -> None:
        _show(result)
        if a.save:
            with a.save.open("a") as stream:
                stream.write(result.to_json() + "\n")

    plan = list(order(rows, chosen, threads, settings.rounds))
    return run_all(plan, settings, seen)


def main() -> int:
    """Measure and print; see the module."""
    a = _arguments()
    chosen = _columns(a.columns, a.peers)
    every = [w.name for w in workloads.WORKLOADS]
    rows = _chosen(a.workloads, workloads.BY_NAME, every)
    threads = [int(n) for n in a.threads.split(",")]
    if a.table:
        names = {c.name for c in chosen}
        results = [Result.from_json(line) for line in a.table.open()]
        results = [r for r in results if r.column in names]
    else:
        results = _measured(a, rows, chosen, threads)
    wait_until_idle(max(threads), a.wait)  # the machine's limits are measured now
    text = _text(chosen, rows, results, threads)
    print(f"\n{text}", end="")
    if a.page:
        write(a.page, text)
    return status(results)


if __name__ == "__main__":
    sys.exit(main())
