"""Run a function once, and find out what a replay of the call has to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from uopc.runtime.capture import captured
from uopc.runtime.jitting.bindings import Given, recipe_of
from uopc.runtime.jitting.cells import tensor_of
from uopc.runtime.jitting.replay import Replay
from uopc.runtime.jitting.snapshot import Snapshot
from uopc.runtime.jitting.surroundings import Surroundings
from uopc.runtime.tree import flatten
from uopc.runtime.values import Holder, cut, held, realize_all
from uopc.uop import Ops, UOp, toposort


def is_tensor(x: Any) -> bool:
    """Whether something is a Tensor, of which this layer knows its fields only."""
    return isinstance(getattr(x, "uop", None), UOp) and hasattr(x, "_home")


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
    before = Snapshot(visible)
    try:
        with captured() as capture:
            result = function(*args, **kwargs)
            before.unmark()
            before.touch(capture.changed.values())
            results, result_structure = flatten(result)
            realize_all(_seen_after(before, results))
    finally:
        before.unmark()
    for name, x in objects:
        if hasattr(x, "__array__"):
            capture.refuse(f"{name} is a NumPy array; pass a Tensor of it")
    given = Given(structure, names, leaves, surroundings, results, result_structure)
    recipe = recipe_of(capture, before, given, is_tensor)
    return _plain(result, before), capture.trouble or Replay(recipe)


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
    cut.add(node)
    return tensor_of(type(t), node.reshape(t.shape))


def _seen_after(before: Snapshot, results: Sequence[Any]) -> list[Holder]:
    """The tensors whose values somebody may see after the call."""
    grads = [b.t.grad for b in before.regraded() if b.t.grad is not None]
    return [*filter(is_tensor, results), *(b.t for b in before.changed()), *grads]
