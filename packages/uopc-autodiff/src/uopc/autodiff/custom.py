"""custom_vjp: a function with a gradient of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from uopc.autodiff.rules.selection import custom_name
from uopc.autodiff.tracing import Arguments, outputs
from uopc.runtime.tree import Structure, flatten
from uopc.tensor import Tensor
from uopc.uop import Ops, UOp, toposort

# Of which functions the ``fwd`` is running here.
_in_forward: ContextVar[frozenset[custom_vjp]] = ContextVar(
    "_in_forward", default=frozenset()
)


class custom_vjp:
    """A function of Tensors whose gradient is given, not derived.

    As in JAX::

        @custom_vjp
        def f(x): ...

        f.defvjp(fwd, bwd)

    ``fwd(*args)`` returns ``(f(*args), residuals)``, where the residuals are anything
    nested with Tensors in it; ``bwd(residuals, g)`` gets them and the cotangent of the
    result, nested like it, and returns a tuple with one cotangent per argument, nested
    like it, or None for zero. Forward mode, second derivatives and batches follow from
    ``bwd``, which must be linear in ``g`` for the first and may use anything
    differentiable for the second.

    A result that is nested has ``bwd`` called once for each tensor in it, with zeros
    for the others. Inside ``fwd`` the function is plain ``f``. A tensor that it reads
    without being given it gets no gradient, so one that requires a gradient, or that is
    an argument of an enclosing transform, is refused unless it is detached.
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        functools.update_wrapper(self, f)
        self.f = f
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self._names: dict[Any, str] = {}

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Give the function its gradient."""
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any) -> Any:
        """The function's value."""
        if self in _in_forward.get():
            return self.f(*args)
        if self.fwd is None or self.bwd is None:
            raise TypeError(
                f"custom_vjp: {self._name()} has no gradient yet; call "
                f"{self._name()}.defvjp(fwd, bwd)"
            )
        what = f"custom_vjp of {self._name()}"
        arguments = Arguments.of(args)
        results, structure = outputs(self.f(*arguments.traced()), what)
        pair = self._forward(arguments)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"{what}: fwd returns a pair, (result, residuals)")
        again, nested = outputs(pair[0], what)
        if nested != structure or [t.shape for t in again] != [
            t.shape for t in results
        ]:
            raise TypeError(f"{what}: fwd's first result is not nested like f's")
        _refuse_closures(what, [*results, *again], arguments)
        residuals = Arguments.of(pair[1])
        inputs = (*arguments.placeholders, *(t.uop for t in residuals.tensors))
        nodes = []
        for i, t in enumerate(results):
            rule = _Rule(self, arguments, residuals, structure, i, tuple(results))
            nodes.append(UOp(Ops.STAGE, (t.uop, *inputs), self._named(rule)))
        return structure.filled(arguments.tensors_of(nodes))

    def _forward(self, arguments: Arguments) -> Any:
        assert self.fwd is not None
        token = _in_forward.set(_in_forward.get() | {self})
        try:
            return self.fwd(*arguments.traced())
        finally:
            _in_forward.reset(token)

    def _name(self) -> str:
        return str(getattr(self.f, "__name__", self.f))

    def _named(self, rule: _Rule) -> str:
        """The name of a rule; equal rules share one, so that equal graphs are equal."""
        name = self._names.get(rule.key)
        if name is None:
            name = self._names[rule.key] = custom_name(rule)
        return name


def _refuse_closures(
    what: str, results: Sequence[Tensor], arguments: Arguments
) -> None:
    """Refuse tensors whose gradient would be lost without a word."""
    if any(t.requires_grad for t in results):  # placeholders do not
        raise ValueError(
            f"{what}: it reads a tensor that requires a gradient and is no argument; "
            "make it an argument, or detach it"
        )
    mine = set(arguments.placeholders)
    for u in toposort([t.uop for t in results], lambda n: () if _stops(n) else n.src):
        if u.op is Ops.PARAM and u.dtype.is_float and u not in mine:
            raise ValueError(
                f"{what}: it reads {u.dtype}{list(u.shape)}, an argument of an "
                "enclosing transform (grad, vmap, checkpoint, ...), which would get no "
                "gradient through it; make it an argument of the function, or use "
                "stop_gradient"
            )


def _stops(u: UOp) -> bool:
    return u.op is Ops.STAGE and u.arg == "detach"


@dataclass(eq=False)
class _Rule:
    """The gradient rule of one result of a custom_vjp."""

    function: custom_vjp
    arguments: Arguments
    residuals: Arguments
    structure: Structure
    which: int
    results: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        self.key = (
            self.function.bwd, self.structure, self.which,
            tuple([(t.shape, t.dtype) for t in self.results]),
            *(_static(a) for a in (self.arguments, self.residuals)),
        )  # fmt: skip
        # Only nesting, shapes and types are looked at later. A rule is kept, and would
        # keep all values of the first call.
        self.arguments, self.residuals = map(_emptied, (self.arguments, self.residuals))
        self.results = tuple([Tensor(t.uop.const_like(0)) for t in self.results])

    def __call__(self, u: UOp, g: UOp) -> tuple[UOp | None, ...]:
        n = len(self.arguments.at)
        inputs, kept = u.src[1 : 1 + n], u.src[1 + n :]
        cotangents: list[Any] = list(self.results)
        cotangents[self.which] = Tensor(g)
        bwd = self.function.bwd
        assert bwd is not None
        residuals = self.residuals.filled([Tensor(r) for r in kept])
        found = bwd(residuals, self.structure.filled(cotangents))
        return (None, *self._checked(found, inputs), *(None for _ in kept))

    def _checked(self, found: Any, inputs: Sequence[UOp]) -> list[UOp | None]:
        """What bwd returned, as one node or None per tensor of the arguments."""
        what = f"custom_vjp of {self.function._name()}: bwd"
        whole = self.arguments.structure
        if not isinstance(found, (tuple, list)) or len(found) != len(whole.parts):
            raise TypeError(
                f"{what} returns a tuple with one cotangent for each of "
                f"{len(whole.parts)} arguments, not {found!r}"
            )
        leaves: list[Any] = []
        for i, (part, like) in enumerate(zip(found, whole.parts, strict=True)):
            if part is None:
                leaves += [None] * like.size
                continue
            given, structure = flatten(part)
            if structure != like:
                raise TypeError(
                    f"{what}: cotangent {i} is not nested like argument {i}"
                )
            leaves += given
        at = self.arguments.at
        return [self._node(what, leaves[k], s) for k, s in zip(at, inputs, strict=True)]

    def _node(self, what: str, leaf: Any, s: UOp) -> UOp | None:
        if leaf is None or not s.dtype.is_float:
            return None
        node = (leaf if isinstance(leaf, Tensor) else Tensor(leaf, dtype=s.dtype)).uop
        if node.shape != s.shape or node.dtype is not s.dtype:
            raise ValueError(
                f"{what} returned {node.dtype}{list(node.shape)} for an argument of "
                f"{s.dtype}{list(s.shape)}"
            )
        return node


def _static(arguments: Arguments) -> tuple[Any, ...]:
    """What tells nested arguments apart, but for the values of their tensors."""
    tensors = set(arguments.at)
    others = [leaf for i, leaf in enumerate(arguments.leaves) if i not in tensors]
    return (arguments.structure, tuple(arguments.at), *map(_hashable, others))


def _emptied(arguments: Arguments) -> Arguments:
    """The arguments without their tensors."""
    at = set(arguments.at)
    leaves = [None if i in at else x for i, x in enumerate(arguments.leaves)]
    return replace(arguments, leaves=leaves)


def _hashable(leaf: Any) -> Any:
    try:
        hash(leaf)
    except TypeError:
        return id(leaf)
    return type(leaf), leaf, repr(leaf) if isinstance(leaf, float) else None
