"""How each op is written in C.

A spelling is an expression over the operands' texts ``{0} {1} ...``, with
``{t}`` for the C type of the result, ``{s}`` for that of the first source,
``{f}`` for the suffix of float functions, and names for use in helper
functions. A spelling that depends on the node is a function of it.

On vectors ``{t}`` and ``{s}`` are vector types of ``{w}`` lanes, ``{m}`` and ``{u}``
those of signed and unsigned integers as wide as the result's lanes, ``{sm}`` and
``{su}`` as wide as the first source's, and ``{e}`` is the name of the result's element
type. A bool is a mask, 0 or -1, whose type is ``{m}``; all masks that an op takes or
gives are equally wide, as wide as its other operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from uopc.backend_c.half import HALF_CASTS
from uopc.backend_c.spelling import Spelling
from uopc.backend_c.types import C_TYPES, INLINE, between, c_literal
from uopc.backend_c.vector_math import VECTOR_MATH
from uopc.backend_c.vector_math.fma import FMA
from uopc.backend_c.vector_math.lanes import MAX, SELECT, fill
from uopc.dtype import DTYPES, DType
from uopc.simplify import Bounds
from uopc.uop import Literal, OpDef, Ops, UOp

AnySpelling = Spelling | Callable[[UOp, Bounds], Spelling]
Spellings = Mapping[OpDef, AnySpelling]


_FLOORDIV = Spelling(
    "uopc_floordiv_{n}({0},{1})",
    "static inline {t} uopc_floordiv_{n}({t} a, {t} b) {{\n"
    "  if (b == 0) return 0;\n"
    "  if (b == ({t})-1) return ({t})(0-a);\n"
    "  return ({t})(a/b-((a%b!=0)&((a^b)<0)));\n"
    "}}\n",
)
_FLOORMOD = Spelling(
    "uopc_floormod_{n}({0},{1})",
    "static inline {t} uopc_floormod_{n}({t} a, {t} b) {{\n"
    "  if (b == 0 || b == ({t})-1) return 0;\n"
    "  {t} r = ({t})(a%b);\n"
    "  return ({t})(r != 0 && (r^b) < 0 ? r+b : r);\n"
    "}}\n",
)
_UNSIGNED_DIV = Spelling(
    "uopc_floordiv_{n}({0},{1})",
    "static inline {t} uopc_floordiv_{n}({t} a, {t} b) {{\n"
    "  return b == 0 ? 0 : ({t})(a/b);\n"
    "}}\n",
)
_UNSIGNED_MOD = Spelling(
    "uopc_floormod_{n}({0},{1})",
    "static inline {t} uopc_floormod_{n}({t} a, {t} b) {{\n"
    "  return b == 0 ? 0 : ({t})(a%b);\n"
    "}}\n",
)
# The algorithm of NumPy's floor_divide and remainder.
_FLOAT_DIV = Spelling(
    "uopc_floordiv_{n}({0},{1})",
    "static inline {t} uopc_floordiv_{n}({t} a, {t} b) {{\n"
    "  if (b == 0) return a/b;\n"
    "  {t} mod = __builtin_fmod{f}(a, b), div = (a-mod)/b;\n"
    "  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;\n"
    "  if (div == 0) return __builtin_copysign{f}(0, a/b);\n"
    "  {t} whole = __builtin_floor{f}(div);\n"
    "  return div-whole > ({t})0.5 ? whole+1 : whole;\n"
    "}}\n",
)
_FLOAT_MOD = Spelling(
    "uopc_floormod_{n}({0},{1})",
    "static inline {t} uopc_floormod_{n}({t} a, {t} b) {{\n"
    "  {t} mod = __builtin_fmod{f}(a, b);\n"
    "  if (b == 0) return mod;\n"
    "  if (mod == 0) return __builtin_copysign{f}(0, b);\n"
    "  return (b < 0) != (mod < 0) ? mod+b : mod;\n"
    "}}\n",
)


def _plain_division(u: UOp, bounds: Bounds) -> bool:
    """Whether C's division, which rounds toward zero, is already right."""
    return bounds(u.src[0])[0] >= 0 and bounds(u.src[1])[0] > 0


def _floordiv(u: UOp, bounds: Bounds) -> Spelling:
    if u.dtype.is_float:
        return _FLOAT_DIV
    if _plain_division(u, bounds):
        return Spelling("({0}/{1})", vector=_by_constant(u, "/"))
    return _FLOORDIV if u.dtype.kind == "int" else _UNSIGNED_DIV


def _floormod(u: UOp, bounds: Bounds) -> Spelling:
    if u.dtype.is_float:
        return _FLOAT_MOD
    if _plain_division(u, bounds):
        return Spelling("({0}%{1})", vector=_by_constant(u, "%"))
    return _FLOORMOD if u.dtype.kind == "int" else _UNSIGNED_MOD


def _by_constant(u: UOp, sign: str) -> str:
    """Division of vectors, which is done by multiplying where the divisor is known.

    Otherwise it is one by one anyway, and what is in unused lanes may be 0.
    """
    by = u.src[1]
    return f"({{0}}{sign}{c_literal(by.arg)})" if by.op is Ops.CONST else ""


def _shift(sign: str, name: str) -> Callable[[UOp, Bounds], Spelling]:
    helper = Spelling(
        f"uopc_{name}_{{n}}({{0}},{{1}})",
        f"static inline {{t}} uopc_{name}_{{n}}({{t}} a, {{t}} b) {{{{\n"
        f"  return b < 8*sizeof(a) ? ({{t}})(a{sign}b) : 0;\n"
        "}}\n",
        f"uopc_{name}_{{t}}({{0}},{{1}})",
        f"{INLINE}{{t}} uopc_{name}_{{t}}({{t}} a, {{t}} b) {{{{\n"
        "  {t} bits = ({t}){{0}} + 8*sizeof(a[0]);\n"
        f"  return (a {sign} (b & (bits - 1))) & ({{t}})(b < bits);\n"
        "}}\n",
    )

    def spell(u: UOp, bounds: Bounds) -> Spelling:
        inside = bounds(u.src[1])[1] < u.dtype.bits
        text = f"({{0}}{sign}{{1}})"
        return Spelling(text, vector=text) if inside else helper

    return spell


def _cast(u: UOp, bounds: Bounds) -> Spelling:
    source = u.src[0].dtype
    if u.dtype.kind == "bool":
        return Spelling("({0}!=0)", vector="(({t})({0}!=({s}){{0}}))")
    if source.is_half or u.dtype.is_half:
        return HALF_CASTS[source.name, u.dtype.name]
    if source.is_float and u.dtype.is_int:
        return _saturating(source, u.dtype)
    value, path = "{0}", _path(source, u.dtype)
    if source.kind == "bool":
        value, path = "-{0}", []  # as wide as the result already
    vector = _converted(_converted(value, *path), "")
    return Spelling("(({t}){0})", (), vector, tuple(map(_typedef, path)))


def _path(source: DType, target: DType) -> list[str]:
    """Types of vectors between two: gcc converts to half or twice the width at once.

    Others it converts one by one.
    """
    kind, a = source.name[0], source.bits
    path: list[str] = []
    if source.is_float and target.bits < 32:
        kind, a = "i", 32
        path.append("i32")
    b = 32 if target.is_float and a < 32 else target.bits
    path += [f"{kind}{bits}" for bits in between(a, b)]
    return [*path, "i32"] if target.is_float and a < 32 else path


def _converted(text: str, *path: str) -> str:
    """Conversions of a vector, one after the other; "" stands for the result."""
    for name in path:
        text = f"__builtin_convertvector({text}, {f'{name}x{{w}}' if name else '{t}'})"
    return text


def _typedef(name: str) -> str:
    size = DTYPES[name].itemsize
    attribute = f"__attribute__((vector_size({size}*{{w}})))"
    return f"typedef {C_TYPES[name]} {name}x{{w}} {attribute};\n"


def _saturating(source: DType, target: DType) -> Spelling:
    """Float to integer: NaN gives 0, out of range the nearest end.

    gcc makes (float)(int)x a truncation of x, which keeps the sign of a zero that an
    integer does not have; so what becomes 0 is told apart.
    """
    high = c_literal(Literal.of(float(target.max), source))
    low = c_literal(Literal.of(float(target.min), source))
    top = c_literal(Literal.of(target.max, target))
    bottom = c_literal(Literal.of(target.min, target))
    name = f"uopc_{source.name}_to_{target.name}"
    f = "f" if source.bits == 32 else ""
    path = _path(source, target)
    masks = [f"i{bits}" for bits in between(source.bits, target.bits)]
    over, under = (_converted(m, *masks, "") for m in ("over", "under"))
    return Spelling(
        f"{name}({{0}})",
        f"static inline {{t}} {name}({{s}} x) {{{{\n"
        f"  return x != x || __builtin_fabs{f}(x) < 1 ? 0 : x >= {high} ? {top}"
        f" : x <= {low} ? {bottom} : ({{t}})x;\n}}}}\n",
        f"{name}_x{{w}}({{0}})",
        (
            *map(_typedef, [*path, *masks]),
            f"{INLINE}{{t}} {name}_x{{w}}({{s}} x) {{{{\n"
            f"  {{sm}} over = ({{sm}})(x >= {high}), under = ({{sm}})(x <= {low});\n"
            f"  {{sm}} inside = ({{sm}})((x >= 1.0{f}) | (x <= -1.0{f}));\n"
            "  inside &= ~over & ~under;\n"
            "  {s} some = ({s})(({sm})x & inside);\n"
            f"  {{t}} high = {over} & {top};\n"
            f"  {{t}} low = {under} & {bottom};\n"
            f"  return {_converted('some', *path, '')} | high | low;\n}}}}\n",
        ),
    )


# The larger one as processors have it is ``b`` if one of them is NaN.
_FLOAT_MAX = """\
{t} uopc_max_{t}({t} a, {t} b) {{
  return uopc_select_{t}(({m})(a != a), a, uopc_vmax_{t}(a, b));
}}
"""
_INT_MAX = """\
{t} uopc_max_{t}({t} a, {t} b) {{
  return uopc_select_{t}(({m})(a > b), a, b);
}}
"""


def _max(u: UOp, bounds: Bounds) -> Spelling:
    nan, helpers = "", [SELECT, INLINE + _INT_MAX]
    if u.dtype.is_float:
        size, kind = ("4", "ps") if u.dtype.bits == 32 else ("8", "pd")
        larger = fill(MAX, {"SIZE": size, "KIND": kind})
        nan, helpers = " || a != a", [SELECT, larger, INLINE + _FLOAT_MAX]
    scalar = (
        "static inline {t} uopc_max_{n}({t} a, {t} b) {{\n"
        f"  return a > b{nan} ? a : b;\n"
        "}}\n"
    )
    if u.dtype.kind == "bool":
        return Spelling("uopc_max_{n}({0},{1})", scalar, "({0}|{1})")
    return Spelling(
        "uopc_max_{n}({0},{1})", scalar, "uopc_max_{t}({0},{1})", tuple(helpers)
    )


def _less(u: UOp, bounds: Bounds) -> Spelling:
    # Of masks, true is the smaller number.
    sign = ">" if u.src[0].dtype.kind == "bool" else "<"
    return Spelling("({0}<{1})", vector=f"(({{t}})({{0}}{sign}{{1}}))")


def _everywhere(text: str) -> Spelling:
    """The same text for scalars and for vectors."""
    return Spelling(text, vector=text)


_WHERE = Spelling(
    "({0}?{1}:{2})",
    vector="uopc_where_{t}({0},{1},{2})",
    vector_helper=INLINE + "{t} uopc_where_{t}({m} c, {t} a, {t} b) {{\n"
    "  return ({t})((({m})a & c) | (({m})b & ~c));\n"
    "}}\n",
)


def _fma(u: UOp, bounds: Bounds) -> Spelling:
    return Spelling(
        "__builtin_fma{f}({0},{1},{2})",
        vector="uopc_fma_{t}({0},{1},{2})",
        vector_helper=FMA[u.dtype.name],
    )


# An instruction for all lanes, of which there is a builtin for each size.
_SQRT = """\
{t} uopc_sqrt_{t}({t} x) {{
#if defined(__SSE2__) && @SIZE@ * {w} == 16
  return __builtin_ia32_sqrtp@X@(x);
#elif defined(__AVX__) && @SIZE@ * {w} == 32
  return __builtin_ia32_sqrtp@X@256(x);
#elif defined(__AVX512F__) && @SIZE@ * {w} == 64 && defined(__clang__)
  return __builtin_ia32_sqrtp@X@512(x, 4);
#elif defined(__AVX512F__) && @SIZE@ * {w} == 64
  return __builtin_ia32_sqrtp@X@512_mask(x, x, -1, 4);
#else
  for (int i = 0; i < {w}; i++) x[i] = __builtin_sqrt{f}(x[i]);
  return x;
#endif
}}
"""


def _sqrt(u: UOp, bounds: Bounds) -> Spelling:
    size, x = ("4", "s") if u.dtype.bits == 32 else ("8", "d")
    helper = INLINE + _SQRT.replace("@SIZE@", size).replace("@X@", x)
    return Spelling("__builtin_sqrt{f}({0})", (), "uopc_sqrt_{t}({0})", helper)


SPELLINGS: Spellings = {
    Ops.ADD: _everywhere("({0}+{1})"),
    Ops.MUL: _everywhere("({0}*{1})"),
    Ops.DIV: _everywhere("({0}/{1})"),
    Ops.RECIP: _everywhere("(1.0{f}/{0})"),
    Ops.FMA: _fma,
    Ops.POW: Spelling("__builtin_pow{f}({0},{1})"),
    Ops.MAX: _max,
    Ops.SQRT: _sqrt,
    Ops.CAST: _cast,
    Ops.WHERE: _WHERE,
    Ops.CMPLT: _less,
    Ops.CMPNE: Spelling("({0}!={1})", vector="(({t})({0}!={1}))"),
    Ops.FLOORDIV: _floordiv,
    Ops.FLOORMOD: _floormod,
    Ops.AND: _everywhere("({0}&{1})"),
    Ops.OR: _everywhere("({0}|{1})"),
    Ops.XOR: _everywhere("({0}^{1})"),
    Ops.SHL: _shift("<<", "shl"),
    Ops.SHR: _shift(">>", "shr"),
    **VECTOR_MATH,
}
