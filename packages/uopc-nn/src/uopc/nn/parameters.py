"""Finding the parameters in any nesting of plain Python objects."""

from __future__ import annotations

from typing import Any

from uopc.tensor import Tensor

_PLAIN = (str, bytes, int, float, complex, type(None), type)


def parameters(x: Any) -> list[Tensor]:
    """The leaf tensors with ``requires_grad`` inside ``x``, each once.

    Looks into lists, tuples, dicts and the attributes of objects, in the order
    in which these hold their items.
    """
    found: dict[int, Tensor] = {}
    seen: set[int] = set()
    stack = [x]
    while stack:
        item = stack.pop()
        if isinstance(item, _PLAIN) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            if item.requires_grad and item.is_leaf:
                found[id(item)] = item
            continue
        stack.extend(reversed(_parts(item)))
    return list(found.values())


def _parts(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, (list, tuple)):
        return list(item)
    return list(getattr(item, "__dict__", {}).values())
