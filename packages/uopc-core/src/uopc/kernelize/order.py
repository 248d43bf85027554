"""In which order kernels run, so that little memory is in use at once.

Finding the best order is NP-hard. A few cheap ones are tried, each in near-linear
time, and the best is kept: the one the graph was walked in; one from the results
down, those first that are complete first; and what remains of both when kernels that
free memory are drawn forward and those that fill it are put off.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

Links = Sequence[Sequence[int]]


def run_order(reads: Links, waits: Links, sizes: Sequence[int]) -> list[int]:
    """A permutation of the kernels that keeps the largest live set small.

    Kernels are numbered in an order that is possible. Kernel ``i`` makes a value of
    ``sizes[i]`` bytes (0 where the memory is not ours to save), reads those of the
    kernels ``reads[i]``, and runs after the kernels ``waits[i]`` as well. The result
    depends on nothing else, needs no more than the given order, and is that order
    unless another needs less.
    """
    work = _Work.of(reads, waits, sizes)
    best = list(range(len(reads)))
    least = work.largest_live(best)
    # While a kernel runs, all that it touches is alive: no order needs less.
    bound = max((sum(sizes[v] for v in t) for t in work.touches), default=0)
    if least > bound:
        for order in work.candidates():
            live = work.largest_live(order)
            if live < least:
                best, least = order, live
            if least == bound:
                break
    return best


def possible_order(needs: Links) -> list[int]:
    """A permutation in which each kernel comes after those that it needs.

    It is the given order, but that what is needed is drawn forward. There is no circle.
    """
    starts = list(reversed(range(len(needs))))
    return _postorder(starts, len(needs), lambda i: needs[i][::-1])


def _postorder(
    stack: list[int], count: int, below: Callable[[int], Iterable[int]]
) -> list[int]:
    """What a stack leads to, each after what is below it; its last ones come first."""
    order: list[int] = []
    seen = [False] * count
    while stack:
        i = stack.pop()
        if i < 0:
            order.append(~i)
        elif not seen[i]:
            seen[i] = True
            stack.append(~i)
            stack += below(i)
    return order


@dataclass(frozen=True)
class _Work:
    """Kernels by number; ``touches`` are the values that each makes or reads."""

    needs: Links
    users: Links
    touches: Links
    sizes: Sequence[int]

    @staticmethod
    def of(reads: Links, waits: Links, sizes: Sequence[int]) -> _Work:
        needs = [
            list(dict.fromkeys((*r, *w))) for r, w in zip(reads, waits, strict=True)
        ]
        touches = [[v for v in {i, *r} if sizes[v]] for i, r in enumerate(reads)]
        return _Work(needs, turned(needs), touches, sizes)

    def candidates(self) -> Iterator[list[int]]:
        """Orders to choose from."""
        for start in (list(range(len(self.needs))), self._on_demand()):
            yield start
            drawn = self._eager(start)
            yield drawn
            yield self._put_off(drawn)

    def largest_live(self, order: Sequence[int]) -> int:
        """The most bytes alive at once: from the first touch to the last."""
        left = self._touchers()
        alive = most = 0
        for i in order:
            alive += self.sizes[i]  # its maker is the first to touch a value
            most = max(most, alive)
            for v in self.touches[i]:
                left[v] -= 1
                if not left[v]:
                    alive -= self.sizes[v]
        return most

    def _touchers(self) -> list[int]:
        """How many kernels touch each value."""
        count = [0] * len(self.needs)
        for t in self.touches:
            for v in t:
                count[v] += 1
        return count

    def _on_demand(self) -> list[int]:
        """Depth first from the results; what has the shortest way to it goes first.

        So the gradient of the last layer comes before that of the one below, which
        needs all that the former needs and more.
        """
        depth: list[int] = []
        for needed in self.needs:
            depth.append(1 + max([depth[s] for s in needed], default=0))
        results = [i for i, u in enumerate(self.users) if not u]

        def deepest_last(kernels: Iterable[int]) -> list[int]:
            return sorted(kernels, key=depth.__getitem__, reverse=True)

        below = self.needs.__getitem__
        return _postorder(
            deepest_last(results), len(depth), lambda i: deepest_last(below(i))
        )

    def _eager(self, order: Sequence[int]) -> list[int]:
        """Kernels that free at least as much as they fill, as soon as they can run.

        The one that frees most goes first; all others keep their ``order``.
        """
        place = [0] * len(order)
        for p, i in enumerate(order):
            place[i] = p
        missing = [len(n) for n in self.needs]
        balance = _Balance(self)
        queue: list[tuple[int, int]] = []

        def offer(i: int) -> None:
            if not missing[i]:
                gain = balance.gain[i]
                heapq.heappush(queue, (-1 - gain if gain >= 0 else 0, place[i]))

        for i in order:
            offer(i)
        found: list[int] = []
        while queue:
            _, p = heapq.heappop(queue)
            i = order[p]
            if missing[i] < 0:
                continue  # it ran, by a later and better offer
            missing[i] = -1
            found.append(i)
            for j in self.users[i]:
                missing[j] -= 1
            for j in (*balance.run(i), *self.users[i]):
                offer(j)
        return found

    def _put_off(self, order: Sequence[int]) -> list[int]:
        """The same backwards: kernels that fill memory run when they are needed."""
        turned = _Work(self.users, self.needs, self.touches, self.sizes)
        return turned._eager(order[::-1])[::-1]


class _Balance:
    """What each kernel would free less what it would fill, if it ran next.

    A value is alive from its first touch to its last, forwards as backwards.
    """

    def __init__(self, work: _Work) -> None:
        self.work = work
        self.by_value = turned(work.touches)
        self.left = [len(t) for t in self.by_value]
        self.gain = [
            -sum(work.sizes[v] for v in t if self.left[v] > 1) for t in work.touches
        ]

    def run(self, i: int) -> list[int]:
        """Run kernel ``i``; returns those whose gain has grown."""
        changed: list[int] = []
        for v in self.work.touches[i]:
            first = self.left[v] == len(self.by_value[v])
            self.left[v] -= 1
            times = first + (self.left[v] == 1)
            if times:
                size = self.work.sizes[v]
                for j in self.by_value[v]:
                    self.gain[j] += times * size
                changed += self.by_value[v]
        return changed


def turned(links: Links) -> list[list[int]]:
    """The same links from the other end: by kernel, those that name it."""
    found: list[list[int]] = [[] for _ in links]
    for i, ends in enumerate(links):
        for e in ends:
            found[e].append(i)
    return found
