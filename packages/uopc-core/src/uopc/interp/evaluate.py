"""Run a graph by the NumPy meaning of each op's row.

Two things keep real models affordable here, and change no meaning: elements
that an EXPAND repeats are computed once, and a sum of products is one einsum
instead of a product array that is then summed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from uopc.plugins import note_owner
from uopc.uop import Ops, UOp, toposort

Array = np.ndarray[Any, Any]
Values = Mapping[UOp, Array]
# Told of a node, its value, its sources (of a sum of products the factors), and their
# values.
Seen = Callable[[UOp, Array, Sequence[UOp], Sequence[Array]], None]


def evaluate(
    roots: Sequence[UOp],
    data: Values,
    contract: bool = True,
    seen: Seen | None = None,
) -> list[Array]:
    """The values of ``roots``, given the contents of their leaves.

    ``data`` maps BUFFER and PARAM nodes (or any node whose value is known) to
    arrays of the node's shape and dtype. Raises KeyError for a missing leaf.
    ``contract=False`` sums every product the naive way. ``seen`` is called for each
    node that is computed or given, children first.
    """
    order = toposort(roots, lambda u: () if u in data else u.src)
    uses = _count_uses(order, data)
    products = _summed_products(order, uses, data, roots) if contract else {}
    fused = set(products.values())
    keep = set(roots)
    values: dict[UOp, Array] = {}
    with np.errstate(all="ignore"):
        for u in order:
            if u in fused:
                continue
            product = products.get(u)
            if product is None:
                values[u] = data[u] if u in data else _value(u, values)
            else:
                values[u] = _sum_of_products(u, *(values[s] for s in product.src))
            src = u.src if product is None else product.src
            src = () if u in data else src
            if seen is not None:
                seen(u, values[u], src, [values[s] for s in src])
            for s in src:
                uses[s] -= 1
                if not uses[s] and s not in keep:
                    del values[s]  # memory: only what is still needed stays
    return [values[r] for r in roots]


def _count_uses(order: Sequence[UOp], data: Values) -> dict[UOp, int]:
    uses: dict[UOp, int] = {}
    for u in order:
        for s in u.src if u not in data else ():
            uses[s] = uses.get(s, 0) + 1
    return uses


def _value(u: UOp, values: Values) -> Array:
    if u.op.numpy is None:
        if u.op in (Ops.BUFFER, Ops.PARAM):
            raise KeyError(f"no data given for {u!r}")
        raise NotImplementedError(f"{u.op.name} has no NumPy meaning")
    try:
        return _computed(u, [values[s] for s in u.src])
    except Exception as error:
        note_owner(error, f"NumPy meaning of op {u.op.name!r}", "ops", u.op.name)
        raise


def _computed(u: UOp, src: list[Array]) -> Array:
    if u.op.kind == "elementwise" and u.shape:
        src = _once(src)
        out = np.broadcast_to(u.op.compute(u, *src), u.shape)
    else:
        out = u.op.compute(u, *src)
    if out.dtype != u.dtype.numpy or out.shape != u.shape:
        raise TypeError(
            f"the NumPy meaning of {u.op.name} gave {out.dtype}{list(out.shape)}, "
            f"expected {u.dtype}{list(u.shape)}"
        )
    return out


def _repeated(x: Array, axis: int) -> bool:
    """Whether all elements along ``axis`` are the same memory."""
    return x.shape[axis] > 1 and x.strides[axis] == 0


def _once(arrays: Sequence[Array]) -> list[Array]:
    """The arrays cut to length 1 along axes that are repeated in all of them."""
    keep = tuple(
        slice(0, 1) if all(_repeated(x, axis) for x in arrays) else slice(None)
        for axis in range(arrays[0].ndim)
    )
    return [x[keep] for x in arrays]


def _summed_products(
    order: Sequence[UOp],
    uses: Mapping[UOp, int],
    data: Values,
    roots: Sequence[UOp],
) -> dict[UOp, UOp]:
    """Sums of float products that nothing else reads: the sum and the product."""
    kept = {*roots, *data}
    return {
        u: u.src[0]
        for u in order
        if u.op is Ops.REDUCE
        and u not in data
        and u.arg.op is Ops.ADD
        and u.dtype.is_float
        and not u.dtype.is_half  # their products are rounded before they are summed
        and u.src[0].op is Ops.MUL
        and uses.get(u.src[0]) == 1
        and u.src[0] not in kept
        and math.prod(u.shape) != math.prod(u.src[0].shape)  # sums of one term
    }


def _sum_of_products(u: UOp, a: Array, b: Array) -> Array:
    """The last axes of ``a * b`` summed, without the axes that are repeated."""
    rank, kept = a.ndim, len(u.shape)
    scale = 1
    for axis in range(kept, rank):
        if _repeated(a, axis) and _repeated(b, axis):
            scale *= a.shape[axis]  # the same product, this many times
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    terms = [_without_repeats(x, letters) for x in (a, b)]
    present = {c for _, text in terms for c in text}
    result = [c for c in letters[:kept] if c in present]
    (x, tx), (y, ty) = terms
    out = np.einsum(f"{tx},{ty}->{''.join(result)}", x, y, optimize=True)
    out = out + out.dtype.type(0)  # a sum starts from 0.0: it is never -0.0
    if scale != 1:
        out = out * out.dtype.type(scale)
    shape = [n if c in present else 1 for c, n in zip(letters, u.shape, strict=False)]
    return np.broadcast_to(out.reshape(shape), u.shape)


def _without_repeats(x: Array, letters: str) -> tuple[Array, str]:
    axes = [axis for axis in range(x.ndim) if not _repeated(x, axis)]
    picked = tuple(slice(None) if a in axes else 0 for a in range(x.ndim))
    return x[picked], "".join(letters[a] for a in axes)
