"""The functions by op, and their spellings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from uopc.backend_c.spelling import Spelling
from uopc.backend_c.types import C_TYPES, NO_ABI
from uopc.backend_c.vector_math.exp import EXP, EXP2
from uopc.backend_c.vector_math.lanes import Helpers
from uopc.backend_c.vector_math.log import LOG, LOG1P, LOG2
from uopc.backend_c.vector_math.tanh import TANH
from uopc.backend_c.vector_math.trig import COS, SIN
from uopc.config import get
from uopc.simplify import Bounds
from uopc.uop import OpDef, Ops, UOp


@dataclass(frozen=True)
class Function:
    """A function of one number.

    Attributes:
        name: what the mathematics library calls it.
        helpers: its definitions on vectors by the element's type, "f32" or "f64"; the
            last is ``uopc_NAME_{t}``.
    """

    name: str
    helpers: Helpers


FUNCTIONS: dict[OpDef, Function] = {
    Ops.EXP: Function("exp", EXP),
    Ops.EXP2: Function("exp2", EXP2),
    Ops.LOG: Function("log", LOG),
    Ops.LOG2: Function("log2", LOG2),
    Ops.LOG1P: Function("log1p", LOG1P),
    Ops.TANH: Function("tanh", TANH),
    Ops.SIN: Function("sin", SIN),
    Ops.COS: Function("cos", COS),
}

# A scalar is computed in one lane of the narrowest vector that has instructions.
_SCALAR_LANES = {"f32": 4, "f64": 2}
_SCALAR = """\
static inline {c} uopc_{name}_{e}({c} x) {{
  {t} v = {{{values}}};
  return uopc_{name}_{t}(v)[0];
}}
"""


def definitions(function: Function, element: str, lanes: int) -> tuple[str, ...]:
    """C of a function on vectors and of all that it needs, their types among it.

    It is ``T uopc_NAME_T(T)``, where T is the element's type, "f32" or "f64", ``x`` and
    the number of lanes: a power of two, at least 2.
    """
    bits = element[1:]
    names = {kind: f"{kind}{bits}x{lanes}" for kind in "fiu"}
    typedefs = NO_ABI + "".join(
        f"typedef {C_TYPES[kind + bits]} {name}"
        f" __attribute__((vector_size({int(bits) // 8 * lanes})));\n"
        for kind, name in names.items()
    )
    fields = {"t": names["f"], "m": names["i"], "u": names["u"], "w": lanes}
    return (typedefs, *(h.format(**fields) for h in function.helpers[element]))


def _spelling(function: Function, element: str) -> Spelling:
    lanes, name = _SCALAR_LANES[element], function.name
    scalar = _SCALAR.format(
        c=C_TYPES[element],
        e=element,
        t=f"{element}x{lanes}",
        name=name,
        values=", ".join(["x"] * lanes),
    )
    texts = (*definitions(function, element, lanes), scalar)
    return Spelling(
        f"uopc_{name}_{element}({{0}})",
        tuple(text.replace("{", "{{").replace("}", "}}") for text in texts),
        f"uopc_{name}_{{t}}({{0}})",
        function.helpers[element],
    )


def _readable(function: Function) -> Spelling:
    """The mathematics library's, for code that is to be read."""
    return Spelling(f"__builtin_{function.name}{{f}}({{0}})")


def _chosen(function: Function) -> Callable[[UOp, Bounds], Spelling]:
    fast = {element: _spelling(function, element) for element in function.helpers}
    readable = _readable(function)

    def spell(u: UOp, bounds: Bounds) -> Spelling:
        return fast.get(u.dtype.name, readable) if get("UOPC_OPT") > 0 else readable

    return spell


VECTOR_MATH: dict[OpDef, Callable[[UOp, Bounds], Spelling]] = {
    op: _chosen(function) for op, function in FUNCTIONS.items()
}
"""The spellings: on vectors and, above `UOPC_OPT` 0, of scalars, with the same bits."""
