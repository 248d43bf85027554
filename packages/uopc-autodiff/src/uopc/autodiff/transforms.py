"""Transforms of functions: grad, vjp, jvp and what follows from them.

Arguments and results are Tensors, or tuples, lists, dicts, named tuples and
dataclasses of them. A transform calls the function once, on placeholders, so Python's
side effects happen once and values cannot be read inside. Results are lazy, and are
themselves functions of their arguments that can be transformed again.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from uopc.autodiff.errors import require_float
from uopc.autodiff.forward import tangents
from uopc.autodiff.gradient import gradient
from uopc.autodiff.tracing import (
    Arguments,
    differentiable,
    fitting,
    outputs,
    require_function,
)
from uopc.runtime.tree import flatten, mapped
from uopc.tensor import Tensor
from uopc.uop import UOp

Function = Callable[..., Any]
Argnums = int | Sequence[int]


class Call:
    """One call of a function on placeholders for some of its arguments.

    Attributes:
        what: the transform, for messages.
        arguments: the arguments that it differentiates by, a tuple of them.
        results: the tensors that the function returned, over the placeholders.
        structure: how they are nested.
        aux: the second result of the function, if it was asked for.
    """

    def __init__(
        self,
        what: str,
        f: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        argnums: Sequence[int] | None = None,
        has_aux: bool | None = None,
    ) -> None:
        """Call the function; None for a choice that the transform does not give."""
        require_function(what, f)
        self.what = what
        numbers = range(len(args)) if argnums is None else argnums
        every = argnums is None
        chosen = tuple([_argument(what, i, args[i], every) for i in numbers])
        self.arguments = Arguments.of(chosen)
        full = list(args)
        for i, traced in zip(numbers, self.arguments.traced(), strict=True):
            full[i] = traced
        result = f(*full, **kwargs)
        self.aux: Any = None
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise TypeError(f"{what}: with has_aux the function returns a pair")
            result, self.aux = result
        instead = " (has_aux=True takes other things as second result)"
        self.results, self.structure = outputs(
            result, what, instead if has_aux is False else ""
        )

    @property
    def nodes(self) -> list[UOp]:
        """The nodes of the results."""
        return [t.uop for t in self.results]

    def scalar(self) -> UOp:
        """The one scalar result; ValueError if it is anything else."""
        if len(self.results) != 1 or self.results[0].shape != ():
            if self.results:
                got = ", ".join(f"{t.dtype}{list(t.shape)}" for t in self.results)
                got += "; reduce it with .sum() or .mean(), or use vjp or jacobian"
            else:
                got = repr(self.structure.filled([]))
            raise ValueError(
                f"{self.what} needs a function with one scalar result, not {got}"
            )
        return self.float_nodes()[0]

    def float_nodes(self) -> list[UOp]:
        """The nodes of the results; TypeError for one that has no derivative."""
        paths = self.structure.paths("the result")
        for t, path in zip(self.results, paths, strict=True):
            require_float(t.uop, f"{self.what}: {path} of the function")
        return self.nodes

    def tensors(self, nodes: Sequence[UOp], *others: Tensor) -> list[Tensor]:
        """Graphs over the placeholders as tensors over the actual arguments."""
        return self.arguments.tensors_of(nodes, [*self.results, *others])

    def value(self) -> Any:
        """The function's result."""
        return self.structure.filled(self.tensors(self.nodes))

    def aux_value(self) -> Any:
        """The function's second result, its tensors over the actual arguments."""
        return mapped(
            lambda t: self.tensors([t.uop], t)[0] if isinstance(t, Tensor) else t,
            self.aux,
        )


def _argument(what: str, i: int, argument: Any, every: bool) -> Any:
    """An argument to differentiate by; ``every`` says that all of them are."""
    nested = flatten(argument)[1].kind is not None
    if every:
        instead = "close over it"
    elif nested:
        instead = "pass it outside of the structure, as an argument of its own"
    else:
        instead = "leave it out of argnums"
    return differentiable(argument, f"{what}: argument {i}", instead)


def require_choice(what: str, f: object, argnums: object) -> None:
    """Raise TypeError for no function, or for argnums that name no positions."""
    require_function(what, f)
    given = argnums if isinstance(argnums, Sequence) else [argnums]
    if isinstance(argnums, str) or not all(_is_position(i) for i in given):
        raise TypeError(
            f"{what}: argnums is {argnums!r}; expected an integer or a tuple of them"
        )


def _is_position(i: Any) -> bool:
    try:
        operator.index(i)
    except TypeError:
        return False
    return not isinstance(i, bool)


def positions(
    what: str, argnums: Argnums, args: Sequence[Any]
) -> tuple[tuple[int, ...], bool]:
    """The positions that argnums names, and whether it names a single one."""
    single = not isinstance(argnums, Sequence)
    given = [
        operator.index(i)
        for i in (argnums if isinstance(argnums, Sequence) else [argnums])
    ]
    n = len(args)
    if any(not -n <= i < n for i in given) or len({i % n for i in given}) < len(given):
        raise ValueError(
            f"{what}: argnums {argnums} with {n} positional arguments; expected "
            "different positions among them"
        )
    return tuple([i % n for i in given]), single


def value_and_grad(
    f: Function, argnums: Argnums = 0, has_aux: bool = False
) -> Function:
    """A function that returns f's value and its gradient.

    Args:
        f: a function with one scalar Tensor as result.
        argnums: by which positional arguments to differentiate; all tensors nested in
            them are of float types. The others are constants.
        has_aux: f returns a pair of a scalar and something else.

    The function returned gives ``(value, gradient)``, or ``((value, aux), gradient)``;
    the gradient is nested like the argument, and a tuple if argnums is a sequence. An
    argument that the result does not depend on gets zeros.

    Raises TypeError for an argument or result that is no float Tensor, ValueError for
    a result that is not scalar.
    """

    return named_value_and_grad("value_and_grad", f, argnums, has_aux)


def named_value_and_grad(
    what: str, f: Function, argnums: Argnums, has_aux: bool | None = None
) -> Function:
    """``value_and_grad`` whose errors name a transform that is made of it.

    ``has_aux`` is None for one that does not give the choice.
    """
    require_choice(what, f, argnums)

    @functools.wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        numbers, single = positions(what, argnums, args)
        call = Call(what, f, args, kwargs, numbers, has_aux)
        root = call.scalar()
        found = gradient(root, call.arguments.placeholders)
        grads = call.arguments.filled(call.tensors(found))
        value = (call.value(), call.aux_value()) if has_aux else call.value()
        return value, grads[0] if single else grads

    return value_and_gradient


def grad(f: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """A function that returns f's gradient; see ``value_and_grad``.

    With ``has_aux`` it returns ``(gradient, aux)``.
    """
    return named_grad("grad", f, argnums, has_aux)


def named_grad(
    what: str, f: Function, argnums: Argnums, has_aux: bool | None = None
) -> Function:
    """``grad`` whose errors name a transform that is made of it, as above."""
    both = named_value_and_grad(what, f, argnums, has_aux)

    @functools.wraps(f)
    def gradient_of(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return gradient_of


def vjp(f: Function, *primals: Any) -> tuple[Any, Function]:
    """f's value, and a function from its cotangent to those of all arguments.

    The function takes a cotangent nested like the result, of its shapes and dtypes,
    and returns a tuple with one cotangent per argument: vector times Jacobian.
    """
    call = Call("vjp", f, primals, {})

    def pullback(cotangent: Any) -> Any:
        given = fitting(cotangent, call.results, call.structure, "vjp: the cotangent")
        found = _pulled_back(call.nodes, call.arguments.placeholders, given)
        return call.arguments.filled(call.tensors(found, *given))

    return call.value(), pullback


def _pulled_back(
    roots: Sequence[UOp], targets: Sequence[UOp], seeds: Sequence[Tensor]
) -> list[UOp]:
    """The gradients of several roots, weighted by seeds, as one sum."""
    total: list[UOp] | None = None
    for root, seed in zip(roots, seeds, strict=True):
        if not root.dtype.is_float:
            continue
        part = gradient(root, targets, seed.uop)
        total = (
            part if total is None else [a + b for a, b in zip(total, part, strict=True)]
        )
    return [t.const_like(0) for t in targets] if total is None else total


def jvp(
    f: Function, primals: Sequence[Any], directions: Sequence[Any]
) -> tuple[Any, Any]:
    """f's value, and how it moves when its arguments do: Jacobian times vector.

    Args:
        f: the function.
        primals: its arguments, a tuple or list.
        directions: one direction per argument, nested like it.

    Forward mode: the cost is about that of f, whatever the number of results.
    """
    _require_tuples("jvp", primals, directions)
    return _moved("jvp", f, primals, directions)


def _moved(what: str, f: Function, primals: Any, directions: Any) -> tuple[Any, Any]:
    """What ``jvp`` gives; errors name the transform that is made of it."""
    value, pushforward = _linearized(what, f, primals)
    return value, pushforward(*directions)


def _require_tuples(what: str, *given: Any) -> None:
    for tree in given:
        if not isinstance(tree, (tuple, list)):
            raise TypeError(
                f"{what}: primals and directions are tuples, as in {what}(f, (x,), "
                f"(v,)), not a {type(tree).__name__}"
            )


def linearize(f: Function, *primals: Any) -> tuple[Any, Function]:
    """f's value, and its derivative there: a linear function of directions.

    The function takes one direction per argument, nested like it, and can be called
    many times without calling f again.
    """
    return _linearized("linearize", f, primals)


def _linearized(what: str, f: Function, primals: Sequence[Any]) -> tuple[Any, Function]:
    call = Call(what, f, tuple(primals), {})

    def pushforward(*directions: Any) -> Any:
        args = call.arguments
        given = fitting(
            tuple(directions), args.tensors, args.structure, f"{what}: the direction"
        )
        moved = _pushed_forward(call.nodes, args.placeholders, given)
        return call.structure.filled(call.tensors(moved, *given))

    return call.value(), pushforward


def _pushed_forward(
    roots: Sequence[UOp], inputs: Sequence[UOp], seeds: Sequence[Tensor]
) -> list[UOp]:
    floats = [r for r in roots if r.dtype.is_float]
    found = iter(tangents(floats, inputs, [s.uop for s in seeds]))
    # What is no float does not move.
    return [next(found) if r.dtype.is_float else r.const_like(0) for r in roots]


def hvp(f: Function, primals: Sequence[Any], directions: Sequence[Any]) -> Any:
    """The Hessian of f times a vector, forward over reverse.

    Args:
        f: a function with one scalar Tensor as result.
        primals: its arguments, a tuple.
        directions: one direction per argument, nested like it.

    Returns a tuple with one product per argument; twice to four times the cost of f.
    """
    _require_tuples("hvp", primals, directions)
    slope = named_grad("hvp", f, tuple(range(len(primals))))
    _, product = _moved("hvp", slope, primals, directions)
    return product


def stop_gradient(tree: Any) -> Any:
    """The same tensors, through which no gradient flows and no tangent passes."""
    return mapped(lambda t: t.detach() if isinstance(t, Tensor) else t, tree)
