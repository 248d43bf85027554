"""Random graphs for hypothesis (the extra ``uopc-core[testing]``).

    @given(graphs())
    def test_my_pass(graph: RandomGraph) -> None: ...

Their choices are hypothesis', so that it shrinks what fails.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase, choices_to_bytes
from hypothesis.errors import NoSuchExample

from uopc.testing.build import Options
from uopc.testing.chance import Chance
from uopc.testing.graphs import RandomGraph, grown
from uopc.uop import toposort

KEY = b"graph"
T = TypeVar("T")


@st.composite
def graphs(draw: st.DrawFn, /, **options: Any) -> RandomGraph:
    """What ``random_graph`` gives for some seed and these options."""
    return grown(_Drawn(draw), Options(**options), "", options)


def shrunk(
    graph: RandomGraph, fails: Callable[[RandomGraph], bool], **options: Any
) -> RandomGraph:
    """The smallest graph that hypothesis finds from ``graph`` and that still fails.

    As few of its nodes as will do are kept. ``graph`` must have been made with the
    same ``options``. It is returned itself where it does not fail again.
    """
    start = settings(
        database=_Holding(choices_to_bytes(graph.choices)),
        phases=(Phase.reuse, Phase.shrink),
        deadline=None,
        derandomize=False,  # which would do without the database
    )
    try:
        smallest = find(graphs(**options), fails, settings=start, database_key=KEY)
    except NoSuchExample:
        return graph
    return _reduced(smallest, fails)


def _reduced(graph: RandomGraph, fails: Callable[[RandomGraph], bool]) -> RandomGraph:
    """One node of the graph alone if that fails, and inputs instead of the others."""
    for k in range(_size(graph) - 1):
        if fails(part := graph.part(k)):
            graph = part
            break
    for k in reversed(range(_size(graph))):
        if k < _size(graph):  # those that only node k + 1 read went with it
            cut = graph.cut(k)
            if _size(cut) < _size(graph) and fails(cut):
                graph = cut
    return graph


def _size(graph: RandomGraph) -> int:
    return len(toposort(graph.roots))


class _Holding(ExampleDatabase):
    """One remembered failure that is yet to be shrunk."""

    def __init__(self, value: bytes) -> None:
        super().__init__()
        self._value = value

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """The failure, whatever the test.

        Hypothesis takes those under its first key as shrunk already.
        """
        return [self._value] if key.endswith(b"secondary") else []

    def save(self, key: bytes, value: bytes) -> None:
        """Nothing is saved."""

    def delete(self, key: bytes, value: bytes) -> None:
        """Nothing was saved."""


class _Drawn(Chance):
    """Choices that hypothesis makes, one integer each."""

    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__(lambda n: draw(_up_to(n - 1)))
        self._draw = draw

    def span(self, action: Callable[[], T]) -> T:
        """Hypothesis leaves out such a group, or makes all of it simple."""
        return self._draw(_span(lambda _: action()))


@functools.cache
def _up_to(last: int) -> st.SearchStrategy[int]:
    return st.integers(0, last)


@st.composite
def _span(draw: st.DrawFn, /, action: Callable[[st.DrawFn], T]) -> T:
    return action(draw)
