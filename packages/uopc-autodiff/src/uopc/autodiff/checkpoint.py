"""checkpoint: compute again in the backward pass instead of keeping."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from uopc.autodiff.tracing import Arguments, outputs
from uopc.uop import Ops, UOp, toposort


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, whose inside is computed again when a gradient flows through it.

    The backward pass of a deep network reads what the forward pass computed, which
    therefore has to be kept until then. Of a checkpointed function only the arguments
    are kept (and what it reads besides, such as parameters); values in between are
    computed a second time, once the cotangent has arrived. The value and all
    derivatives are what they are without it, bit for bit.

    Args:
        f: a function of Tensors and nested structures of them. It is called once, on
            placeholders, so it cannot read values.
    """

    @functools.wraps(f)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        arguments = Arguments.of((args, kwargs))
        traced_args, traced_kwargs = arguments.traced()
        result = f(*traced_args, **traced_kwargs)
        tensors, structure = outputs(result, "checkpoint")
        nodes = [_marked(t.uop, arguments.placeholders) for t in tensors]
        return structure.filled(arguments.tensors_of(nodes, tensors))

    return checkpointed


def _marked(root: UOp, inputs: Iterable[UOp]) -> UOp:
    """The node under a STAGE that names what to compute it again from.

    That are the arguments and whatever else its inside reads, but no constants: rules
    look at those.
    """
    inside: set[UOp] = set()  # what depends on an argument
    data: set[UOp] = set()
    sources: dict[UOp, None] = {}
    ends = set(inputs)
    for u in toposort([root], lambda n: () if n in ends else n.src):
        if u in ends or u.op in (Ops.BUFFER, Ops.PARAM):
            data.add(u)
        elif not data.isdisjoint(u.src):
            data.add(u)
            if any(s in ends or s in inside for s in u.src):
                inside.add(u)
                sources.update((s, None) for s in u.src if s not in inside)
    if root not in inside:
        return root
    named = (s for s in sources if s in data and s not in inside)
    return UOp(Ops.STAGE, (root, *named), "checkpoint")
