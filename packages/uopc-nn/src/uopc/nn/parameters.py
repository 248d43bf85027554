"""Finding the parameters in any nesting of plain Python objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Set
from types import ModuleType
from typing import Any

from uopc.tensor import Tensor

# A module is searched by no one: what it holds is not the model's.
_PLAIN = (str, bytes, int, float, complex, type(None), type, ModuleType)


def parameters(x: Any) -> list[Tensor]:
    """The leaf tensors with ``requires_grad`` inside ``x``, each once.

    Looks into lists, tuples, deques, sets, the values of dicts and the
    attributes of objects, in the order in which these hold their items.
    """
    tensors = (item for item in objects(x) if isinstance(item, Tensor))
    return [t for t in tensors if t.requires_grad and t.is_leaf]


def objects(x: Any) -> Iterator[Any]:
    """``x`` and all objects inside, each once, in the order of `parameters`."""
    # The objects themselves, so that no new one takes the id of another.
    seen: dict[int, Any] = {}
    stack = [x]
    while stack:
        item = stack.pop()
        if isinstance(item, _PLAIN) or id(item) in seen:
            continue
        seen[id(item)] = item
        yield item
        if not isinstance(item, Tensor):
            stack.extend(reversed(_parts(item)))


def _parts(item: Any) -> list[Any]:
    """The items of a container, then the attributes of the object."""
    parts: list[Any] = []
    if isinstance(item, Mapping):
        parts += item.values()
    elif isinstance(item, (list, tuple, deque, Set)):
        parts += item
    parts += getattr(item, "__dict__", {}).values()
    for cls in reversed(type(item).__mro__):
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{cls.__name__.lstrip('_')}{name}"  # a private name
            if name not in ("__dict__", "__weakref__") and hasattr(item, name):
                parts.append(getattr(item, name))
    return parts
