"""What the runtime has done since the process started, in numbers."""

from __future__ import annotations

import threading
from dataclasses import astuple, dataclass

from uopc.kernelize.plan import plan_counts
from uopc.uop import fork_safe


@dataclass(frozen=True)
class Stats:
    """Counters that only grow; ``after - before`` is what happened between two.

    Attributes:
        plans_made: graphs for which there was no plan.
        plans_found: graphs whose plan was there.
        compilations: programs that a backend had a compiler make. The reference
            backend has none.
        cache_hits: programs that a backend found on disk instead.
        native_calls: calls of the program of a plan, one per plan that was run.
        bytes_allocated: outputs and temporaries that those calls were given.
    """

    plans_made: int
    plans_found: int
    compilations: int
    cache_hits: int
    native_calls: int
    bytes_allocated: int

    def __sub__(self, earlier: Stats) -> Stats:
        return Stats(
            *(a - b for a, b in zip(astuple(self), astuple(earlier), strict=True))
        )


_lock = fork_safe(threading.Lock())
_counts = dict.fromkeys(
    ("compilations", "cache_hits", "native_calls", "bytes_allocated"), 0
)


def count(**amounts: int) -> None:
    """Add to the counters of these names; for the runtime and for backends.

    A backend counts ``compilations`` and ``cache_hits``. Raises KeyError for a name
    that `Stats` does not have, or that is not counted here.
    """
    with _lock:
        for name, amount in amounts.items():
            _counts[name] += amount


def stats() -> Stats:
    """The counters now. There is no reset: take the difference of two of them."""
    with _lock:
        return Stats(plan_counts.made, plan_counts.found, **_counts)
