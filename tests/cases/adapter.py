"""The programs of cases.json on tensors: a NumPy-like namespace and its reader.

A program is one Python expression. It is parsed by ``ast`` and interpreted here, node
by node, so that data is never run as code.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import SimpleNamespace
from typing import Any

import numpy as np

from uopc.autodiff import gradient
from uopc.dtype import boolean, f64, i32
from uopc.tensor import Tensor

Array = np.ndarray[Any, Any]
Axis = int | None


def decoded(value: Any) -> Any:
    """A value of the file, where nan, inf, -inf and -0.0 are strings."""
    if isinstance(value, list):
        return [decoded(v) for v in value]
    if isinstance(value, dict):
        return {k: decoded(v) for k, v in value.items()}
    special = value in ("nan", "inf", "-inf", "-0.0")
    return float(value) if special else value


def constant(data: Any) -> Tensor:
    return Tensor(np.array(decoded(data), np.float64))


def lifted(x: Any) -> Tensor:
    """An operand as a tensor: Python's numbers have no methods."""
    return x if isinstance(x, Tensor) else Tensor(float(x), dtype=f64)


def grad(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of the sum of f(x), a tensor that can be differentiated."""
    return grads(f(x), [x])[0]


def grads(value: Tensor, wrt: Sequence[Tensor]) -> list[Tensor]:
    return [Tensor(g) for g in gradient(value.sum().uop, [x.uop for x in wrt])]


def method(name: str) -> Callable[..., Tensor]:
    def call(x: Any, *args: Any, **options: Any) -> Tensor:
        return getattr(lifted(x), name)(*args, **options)

    return call


UNARY = ("exp", "log", "sqrt", "tanh", "sigmoid", "relu", "detach")
REDUCING = ("sum", "prod", "max", "min", "mean", "std", "norm", "softmax",
            "log_softmax", "cumsum")  # fmt: skip
OTHER = ("maximum", "minimum", "flip")

xp = SimpleNamespace(
    **{name: method(name) for name in (*UNARY, *REDUCING, *OTHER)},
    where=lambda c, a, b: c.where(a, b),
    stack=lambda parts, axis=0: Tensor.stack(list(map(lifted, parts)), axis),
    concat=lambda parts, axis=0: Tensor.cat(list(parts), axis),
    take=Tensor.take,
    take_along=Tensor.take_along_axis,
    einsum=Tensor.einsum,
)

NAMES: dict[str, Any] = {
    "xp": xp,
    "A": constant,
    "IDX": lambda data: Tensor(data, dtype=i32),
    "MASK": lambda data: Tensor(data, dtype=boolean),
    "INF": float("inf"),
    "NAN": float("nan"),
    "grad": grad,
}

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
COMPARING: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Gt: operator.gt,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
    ast.LtE: operator.le,
}
REPEAT = re.compile(r"repeat (\d+) times: (\w+) = (.*)")


def run(program: str, variables: Mapping[str, Tensor]) -> Tensor:
    """The value of a program, with the names that it may use besides its own."""
    if found := REPEAT.fullmatch(program):
        count, name, body = found.groups()
        tree = ast.parse(body, mode="eval").body
        start = dict(variables)

        def once(known: Mapping[str, Any], _: int) -> Mapping[str, Any]:
            return {**known, name: value_of(tree, {**NAMES, **known})}

        return reduce(once, range(int(count)), start)[name]
    tree = ast.parse(program, mode="eval").body
    return lifted(value_of(tree, {**NAMES, **variables}))


def value_of(node: ast.expr | None, names: Mapping[str, Any]) -> Any:
    """The value of an expression; ValueError for what programs have no need of."""
    match node:
        case None:
            return None
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.Attribute(value=owner, attr=name) if not name.startswith("_"):
            return getattr(value_of(owner, names), name)
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return -value_of(x, names)
        case ast.BinOp(left=a, op=op, right=b) if type(op) in BINARY:
            return BINARY[type(op)](value_of(a, names), value_of(b, names))
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in COMPARING:
            return COMPARING[type(op)](value_of(a, names), value_of(b, names))
        case ast.List(elts=parts):
            return [value_of(p, names) for p in parts]
        case ast.Tuple(elts=parts):
            return tuple(value_of(p, names) for p in parts)
        case ast.Slice(lower=a, upper=b, step=c):
            return slice(*(value_of(x, names) for x in (a, b, c)))
        case ast.Subscript(value=x, slice=key):
            return value_of(x, names)[value_of(key, names)]
        case ast.Call(func=f, args=args, keywords=options):
            named = {k.arg or "": value_of(k.value, names) for k in options}
            return value_of(f, names)(*(value_of(a, names) for a in args), **named)
        case ast.Lambda(args=given, body=body):
            (parameter,) = (a.arg for a in given.args)
            return lambda x: value_of(body, {**names, parameter: x})
    raise ValueError(f"a program with {ast.dump(node)}")
