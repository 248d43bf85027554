"""einsum: sums of products by named axes, and diagonals as views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uopc.composite.shape import pad, reduce_axes
from uopc.uop import Ops, UOp


def diagonal(u: UOp) -> UOp:
    """The elements (..., i, i) of the last two axes, as one axis.

    Every (n + 1)-th element of the flattened square, which is the first column after
    a row is added at its end: a view, without arithmetic.
    """
    *lead, rows, columns = u.shape
    n = min(rows, columns)
    window = [(0, m) for m in lead]
    if rows != columns:
        u = u.shrink([*window, (0, n), (0, n)])
    if not n:
        return u.reshape((*lead, 0))
    flat = pad(u.reshape((*lead, n * n)), [*((0, 0) for _ in lead), (0, n)])
    skewed = flat.reshape((*lead, n, n + 1))
    return skewed.shrink([*window, (0, n), (0, 1)]).reshape((*lead, n))


def einsum(
    terms: Sequence[Sequence[str]], result: Sequence[str], u: Sequence[UOp]
) -> UOp:
    """The sum over all names that ``result`` lacks of the product of the operands.

    Args:
        terms: the names of each operand's axes. A name that occurs twice in one
            operand stands for its diagonal.
        result: the names of the axes of the result.
        u: the operands, of one dtype. Axes of one name are of one length.

    Operands are multiplied two at a time, from the left; what no later operand and no
    axis of the result needs is summed at once.
    """
    names, value = _distinct(list(terms[0]), u[0])
    for k in range(1, len(u)):
        other, v = _distinct(list(terms[k]), u[k])
        later = {*result, *(name for term in terms[k + 1 :] for name in term)}
        names, value = _summed(names, value, {*other, *later})
        other, v = _summed(other, v, {*names, *later})
        names, value = _product(names, value, other, v, later)
    names, value = _summed(names, value, set(result))
    return _ordered(names, value, list(result))


def _distinct(names: list[str], u: UOp) -> tuple[list[str], UOp]:
    """Each name once, by diagonals."""
    while repeated := [name for name in names if names.count(name) > 1]:
        name = repeated[0]
        i = names.index(name)
        j = names.index(name, i + 1)
        rest = [k for k in range(len(names)) if k not in (i, j)]
        u = diagonal(u.permute([*rest, i, j]))
        names = [*(names[k] for k in rest), name]
    return names, u


def _summed(names: list[str], u: UOp, wanted: set[str]) -> tuple[list[str], UOp]:
    """Without the axes that are not wanted."""
    gone = [i for i, name in enumerate(names) if name not in wanted]
    kept = [name for name in names if name in wanted]
    return kept, reduce_axes(u, Ops.ADD, gone, keepdim=False)


def _product(
    names: list[str], u: UOp, other: list[str], v: UOp, wanted: set[str]
) -> tuple[list[str], UOp]:
    """The product of two operands, summed over what is not wanted.

    In the form of a matrix product: the axes that stay, then those that are summed.
    """
    length = {**dict(zip(names, u.shape, strict=True)),
              **dict(zip(other, v.shape, strict=True))}  # fmt: skip
    stays = [name for name in length if name in wanted]
    order = stays + [name for name in length if name not in wanted]
    product = _spread(names, u, order, length) * _spread(other, v, order, length)
    n = len(order) - len(stays)
    return stays, product.reduce(Ops.ADD, n) if n else product


def _spread(
    names: list[str], u: UOp, order: list[str], length: Mapping[str, int]
) -> UOp:
    """An operand over all the axes of ``order``."""
    u = _ordered(names, u, [name for name in order if name in names])
    ones = [length[name] if name in names else 1 for name in order]
    return u.reshape(ones).expand([length[name] for name in order])


def _ordered(names: list[str], u: UOp, order: list[str]) -> UOp:
    axes = [names.index(name) for name in order]
    return u if axes == list(range(len(axes))) else u.permute(axes)
