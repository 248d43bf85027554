"""The results as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from peers.columns import Column
from peers.result import Result
from peers.workloads import Workload

DISTURBED = 0.25
"""From so many processors in use by others, a figure is marked."""

# Title, workload, attribute of the result.
OTHERS: tuple[tuple[str, str, str], ...] = (
    ("first call, MLP train step, ms", "mlp", "first"),
    ("first call, GPT train step, ms", "gpt", "first"),
    ("add two 3-vectors, empty caches, ms", "hello", "first"),
    ("peak memory, GPT train step, MB", "gpt", "memory"),
)


def number(value: float) -> str:
    """Three digits, more of thousands."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 1 else f"{value:.3f}"


def best(results: Iterable[Result], key: str = "median") -> Result | None:
    """The round that was disturbed least: the one with the least figure."""
    fine = [r for r in results if not r.error and getattr(r, key)]
    return min(fine, key=lambda r: float(getattr(r, key)), default=None)


class Table:
    """The results of a run, by workload, column and number of threads.

    Args:
        columns: in the order of the table.
        workloads: in the order of the table.
        results: in any order; of several rounds the least counts.
        bound: the least milliseconds that a workload can take with some threads; 0
            if nothing is known.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        workloads: Sequence[Workload],
        results: Iterable[Result],
        bound: Callable[[Workload, int], float] = lambda w, n: 0.0,
    ) -> None:
        self.columns, self.workloads, self.bound = columns, workloads, bound
        self._by: dict[tuple[str, str, int], list[Result]] = {}
        for r in results:
            self._by.setdefault((r.workload, r.column, r.threads), []).append(r)

    def value(self, workload: str, column: str, threads: int, key: str) -> float:
        """The figure, or 0."""
        found = best(self._by.get((workload, column, threads), ()), key)
        return float(getattr(found, key)) if found else 0.0

    def cell(self, workload: str, column: str, threads: int) -> str:
        """The median; marked where others were using the processors."""
        found = best(self._by.get((workload, column, threads), ()))
        if found is None:
            return "-"
        return number(found.median) + ("~" if found.foreign > DISTURBED else "")

    def quotient(self, workload: Workload, column: str, threads: int) -> float:
        """The time of a unit of work, over that of the workload beside it; or 0."""
        name, _ = workload.beside or ("", "")
        own = self.value(workload.name, column, threads, "median")
        other = self.value(name, column, threads, "median")
        return own / workload.share / other if own and other else 0.0

    def to_peers(self, workload: str, threads: int) -> float:
        """The time of uopc over that of the best peer; 0 if there are not both."""
        own = self.value(workload, "uopc", threads, "median")
        peers = [c.name for c in self.columns if not c.is_own]
        times = [self.value(workload, name, threads, "median") for name in peers]
        fastest = min((t for t in times if t), default=0.0)
        return own / fastest if fastest else 0.0

    def _row(self, title: str, *cells: str) -> str:
        return "| " + " | ".join((title, *cells)) + " |"

    def _rows(self, workload: Workload, threads: int) -> list[str]:
        cells = [self.cell(workload.name, c.name, threads) for c in self.columns]
        if set(cells) == {"-"}:
            return []
        own = self.value(workload.name, "uopc", threads, "median")
        ratio, least = self.to_peers(workload.name, threads), 0.0
        if not workload.contended:
            least = self.bound(workload, threads)
        cells += [f"{ratio:.2f}" if ratio else "-", number(least) if least else "-"]
        cells.append(f"{own / least:.2f}" if own and least else "-")
        rows = [self._row(workload.title, *cells)]
        if workload.beside:
            name, what = workload.beside
            title = next((w.title for w in self.workloads if w.name == name), "")
            beside = [self.quotient(workload, c.name, threads) for c in self.columns]
            if any(beside):
                found = [f"x{q:.2f}" if q else "-" for q in beside]
                label = f"… {what}, over {title}"
                rows.append(self._row(label, *found, "", "", ""))
        return rows

    def main(self, threads: int) -> str:
        """Median milliseconds, beside the ratios to the best peer and to the bound."""
        titles = [c.title for c in self.columns]
        header = self._row("ms", *titles, "uopc / best peer", "bound", "uopc / bound")
        rows = [row for w in self.workloads for row in self._rows(w, threads)]
        return "\n".join([header, "|---" * (len(titles) + 4) + "|", *rows])

    def others(self, threads: int) -> str:
        """First calls and memory."""
        rows = []
        for title, workload, key in OTHERS:
            found = [self.value(workload, c.name, threads, key) for c in self.columns]
            if any(found):
                rows.append(self._row(title, *(number(v) if v else "-" for v in found)))
        if not rows:
            return ""
        header = self._row("", *(c.title for c in self.columns))
        return "\n".join([header, "|---" * (len(self.columns) + 1) + "|", *rows])

    def errors(self) -> list[str]:
        """What went wrong, each once."""
        found = {
            f"{r.workload}, {r.column}: {r.error}": None
            for results in self._by.values()
            for r in results
            if r.error
        }
        return list(found)
