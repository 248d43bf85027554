"""Whole Jacobians and Hessians, by pushing or pulling all unit vectors as a batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from uopc.autodiff.batching import batched, repeated
from uopc.autodiff.forward import tangents
from uopc.autodiff.gradient import gradient
from uopc.autodiff.tracing import fresh
from uopc.autodiff.transforms import (
    Argnums,
    Call,
    named_grad,
    positions,
    require_choice,
)
from uopc.composite import iota
from uopc.dtype import boolean
from uopc.uop import UOp

Mode = Literal["reverse", "forward"]


def jacobian(
    f: Callable[..., Any], argnums: Argnums = 0, mode: Mode = "reverse"
) -> Callable[..., Any]:
    """A function that returns the derivative of every result by every argument.

    Args:
        f: a function of Tensors and nested structures of them, of float types.
        argnums: by which positional arguments to differentiate.
        mode: ``"reverse"`` is a batch of one cotangent per element of the results,
            ``"forward"`` of one tangent per element of the arguments: choose the fewer.

    For each result, nested like it, the function returned gives derivatives nested like
    the argument (a tuple of them if argnums is a sequence), of the shape of the result
    followed by that of the argument. Raises as ``grad`` does, but results may have any
    shape.
    """
    if mode not in ("reverse", "forward"):
        raise ValueError(f"jacobian: mode is 'reverse' or 'forward', not {mode!r}")
    return _jacobian("jacobian", f, argnums, mode)


def _jacobian(
    what: str, f: Callable[..., Any], argnums: Argnums, mode: Mode
) -> Callable[..., Any]:
    """``jacobian``; errors name the transform that is made of it."""
    require_choice(what, f, argnums)

    @functools.wraps(f)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        numbers, single = positions(what, argnums, args)
        call = Call(what, f, args, kwargs, numbers)
        by_result = _rows if mode == "reverse" else _columns
        blocks = by_result(call.float_nodes(), call.arguments.placeholders)
        found = []
        for row in blocks:
            nested = call.arguments.filled(call.tensors(row))
            found.append(nested[0] if single else nested)
        return call.structure.filled(found)

    return jacobian_of


def hessian(f: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """A function that returns all second derivatives of f, forward over reverse.

    f has one scalar result. The second derivatives are nested like the argument (a
    tuple if argnums is a sequence) twice over: ``h[i][j]`` is by argument i, then j.
    """
    slope = named_grad("hessian", f, argnums)
    return _jacobian("hessian", slope, argnums, "forward")


def _rows(roots: Sequence[UOp], inputs: Sequence[UOp]) -> list[list[UOp]]:
    """The Jacobian of each root by each input, from a cotangent per element."""
    found = []
    for root in roots:
        seed, live = _unit(root)
        pulled = gradient(root, inputs, seed, live=live)
        whole = _over_units(pulled, seed, live)
        pairs = zip(whole, inputs, strict=True)
        found.append([w.reshape(root.shape + s.shape) for w, s in pairs])
    return found


def _columns(roots: Sequence[UOp], inputs: Sequence[UOp]) -> list[list[UOp]]:
    """The same from a tangent per element of the inputs."""
    columns = []
    for s in inputs:
        seed, live = _unit(s)
        whole = _over_units(tangents(roots, [s], [seed], [live]), seed, live)
        columns.append([_last(w, r, s) for w, r in zip(whole, roots, strict=True)])
    return [[column[k] for column in columns] for k in range(len(roots))]


def _last(whole: UOp, root: UOp, s: UOp) -> UOp:
    """The batch axis behind those of the root, in the shape of the input."""
    rank = len(root.shape)
    return whole.permute((*range(1, rank + 1), 0)).reshape(root.shape + s.shape)


def _unit(u: UOp) -> tuple[UOp, UOp]:
    """Placeholders for a unit vector of the node's shape, and for where it is 1."""
    return fresh(u), fresh(UOp.const(False, boolean).broadcast_scalar(u.shape))


def _over_units(roots: Sequence[UOp], seed: UOp, live: UOp) -> list[UOp]:
    """The roots for every unit vector in place of ``seed``, as a first axis.

    Where a vector is 0 nothing flows, not even infinity times 0.
    """
    n = math.prod(seed.shape)
    square = (n, n)
    rows, columns = (iota(n).reshape(s).expand(square) for s in ((n, 1), (1, n)))
    here = rows.eq(columns)
    ones = UOp.const(1, seed.dtype).broadcast_scalar(square)
    units = here.where(ones, ones.const_like(0))
    shape = (n, *seed.shape)
    whole = batched(roots, {seed: units.reshape(shape), live: here.reshape(shape)})
    return [u if has else repeated(u, n) for u, has in whole]
