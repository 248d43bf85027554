"""What a function can see, for the tests of how that is watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uopc.runtime.jitting.surroundings import Surroundings
from uopc.tensor import Tensor


def around(thing: Any) -> Surroundings:
    """What can be seen through a closure cell."""

    def f() -> Any:
        return thing

    return of(f)


def of(f: Callable[..., Any]) -> Surroundings:
    seen = Surroundings(f, [], lambda x: isinstance(x, Tensor))
    assert seen.change() == ""
    assert seen.whole
    assert seen.unseen == []
    return seen
