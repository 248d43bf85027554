"""Run a function once, and find out what a replay of the call has to do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from uopc.runtime.capture import captured
from uopc.runtime.jitting.bindings import Given, recipe_of
from uopc.runtime.jitting.recipe import shown
from uopc.runtime.jitting.replay import Replay
from uopc.runtime.jitting.snapshot import Snapshot
from uopc.runtime.jitting.surroundings import Surroundings
from uopc.runtime.tree import flatten
from uopc.runtime.values import Holder, held, realize_all
from uopc.uop import Ops, toposort


def is_tensor(x: Any) -> bool:
    """Whether something is a Tensor, of which this layer knows its fields only."""
    # Of the class, since attributes of other objects may be code.
    kind = type(x)
    return hasattr(kind, "_home") and hasattr(kind, "uop")


def has_placeholders(tensors: Iterable[Holder]) -> bool:
    """Whether some of these are not values, but what a transform traces with."""
    lazy = [t.uop for t in tensors if held(t.uop) is None]
    return any(u.op is Ops.PARAM for u in toposort(lazy))


def trace(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Replay | str | None]:
    """Call a function; returns its result, and what repeats the call.

    Instead of the latter, words that say why there is no such thing; None if that is
    not for good. The tensors among the arguments must have been computed.
    """
    leaves, structure = flatten((args, kwargs))
    names = [n for part in structure.parts for n in part.paths("argument ")]
    objects = [(n, x) for n, x in zip(names, leaves, strict=True) if not is_tensor(x)]
    surroundings = Surroundings(function, objects, is_tensor)
    visible = [*filter(is_tensor, leaves), *surroundings.leaves.values()]
    if has_placeholders(visible):
        # Some transform calls this: what it makes of it can be captured instead.
        return function(*args, **kwargs), None
    realize_all(surroundings.leaves.values())
    realize_all([])  # what was assigned before is no part of the call
    before, random = Snapshot(visible), _random_states()
    try:
        with captured() as capture:
            capture.made |= before.values
            result = function(*args, **kwargs)
            before.unmark()
            before.touch(capture.changed.values())
            results, result_structure = flatten(result)
            realize_all(_seen_after(before, results))
    finally:
        before.unmark()
    for name, x in objects:
        if isinstance(x, np.ndarray):
            capture.refuse(f"{name} is a NumPy array; pass a Tensor of it")
    if _random_states() != random:
        capture.refuse(
            "it draws random numbers of Python's or NumPy's; draw with Tensor.rand, or "
            "outside of it"
        )
    if surroundings.unseen:
        capture.refuse(
            f"it can see an iterator ({surroundings.unseen[0]}), and how far that is "
            "cannot be seen; give it what it takes from there"
        )
    given = Given(structure, names, leaves, surroundings, results, result_structure)
    recipe = recipe_of(capture, before, given, is_tensor)
    return _plain(result, before), capture.trouble or Replay(recipe)


def _random_states() -> list[Any]:
    """Where the streams of random numbers are that all of Python shares."""
    found = []
    if "random" in sys.modules:
        found.append(sys.modules["random"].getstate())
    if "numpy.random" in sys.modules:
        state: Any = np.random.get_state()
        found.append((bytes(state[1]), state[2:]))
    return found


def values_of(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of a call as replays give it: values without graphs."""
    before = Snapshot()
    return _plain(function(*args, **kwargs), before)


def _plain(result: Any, before: Snapshot) -> Any:
    """The result with its values computed, and without graphs."""
    leaves, structure = flatten(result)
    realize_all(filter(is_tensor, leaves))
    plain = {
        id(t): _without_graph(t)
        for t in leaves
        if is_tensor(t) and t.requires_grad and t not in before
    }
    return structure.filled([plain.get(id(x), x) for x in leaves]) if plain else result


def _without_graph(t: Holder) -> Any:
    node = held(t.uop)
    assert node is not None
    return shown(type(t), node.reshape(t.shape), is_cut=True)


def _seen_after(before: Snapshot, results: Sequence[Any]) -> list[Holder]:
    """The tensors whose values somebody may see after the call."""
    grads = [b.t.grad for b in before.regraded() if b.t.grad is not None]
    return [*filter(is_tensor, results), *(b.t for b in before.changed()), *grads]
