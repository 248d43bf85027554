"""log, log2 and log1p.

``x = 2**e * (1+f)`` with ``1+f`` between the roots of 1/2 and 2, and ``log(1+f)`` is
``f + w``. In f32, w is f**2 times a polynomial of f; in f64 it is ``s*(h+R)-h`` with
``h = f*f/2``, ``s = f/(2+f)`` and R a polynomial of s**2, because
``log(1+f) = log((1+s)/(1-s)) = 2s+sR`` (the form of fdlibm's ``e_log.c``). Both are
fitted with sollya's fpminimax: 2**-27.8 of the logarithm, and 2**-58.0.

f is exact, and the sum of it and e log 2, whose first part is exact, is kept as two
numbers, so that one rounding is left: that of the last addition. log2 has ``f log2(e)``
as two numbers likewise: the product of their first halves is exact.

log1p takes e from ``1+x`` as it is rounded, and f from ``2**-e * x + (2**-e - 1)``,
whose rounding error it adds at the end.
"""

from __future__ import annotations

from uopc.backend_c.vector_math.fma import FMA
from uopc.backend_c.vector_math.lanes import (
    INLINE,
    SELECT,
    SPLAT,
    STEP,
    Helpers,
    fill,
    horner,
)

# The difference between 1 and the root of 1/2 is added, so that the exponent changes
# where 1+f begins anew. Subnormal numbers are scaled up before. An exponent in the
# digits of 2**23 (2**52) is that number and itself.
_EXPONENT = (
    INLINE
    + """\
{t} uopc_exponent_{t}({t} x, {u}* bits) {{
  {u} small = ({u})(x < @SMALLEST@);
  x *= ({t})((small & @UP_BITS@) + @ONE_BITS@);
  *bits = ({u})x + (@ONE_BITS@-@ROOT_BITS@);
  {t} e = ({t})(*bits >> @DIGITS@ | @SHIFT_BITS@) - @SHIFT@;
  return e - ({t})(small & ({u})uopc_splat_{t}(@DIGITS@));
}}
"""
)
_FRACTION = (
    INLINE
    + """\
{t} uopc_fraction_{t}({u} bits) {{
  return ({t})((bits & @DIGIT_BITS@) + @ROOT_BITS@) - @ONE@;
}}
"""
)
_REST = {
    "f32": INLINE
    + """\
{t} uopc_@NAME@_rest_{t}({t} f, {t} low) {{
@TERMS@
  return uopc_fma_{t}(f*f, p, low);
}}
""",
    "f64": INLINE
    + """\
{t} uopc_@NAME@_rest_{t}({t} f, {t} low) {{
  {t} s = f/(f+2.0), z = s*s, h = 0.5*f*f;
@TERMS@
  {t} w = uopc_fma_{t}(s, uopc_fma_{t}(z, p, h), -h);
  return @SUM@;
}}
""",
}
_ENDS = (
    INLINE
    + """\
{t} uopc_log_ends_{t}({t} x, {t} y) {{
  {m} below = ({m})(x < @ZERO@) | ({m})uopc_splat_{t}(-__builtin_inf());
  y = uopc_select_{t}(({m})(x > @ZERO@), y, ({t})below);
  return uopc_select_{t}(({m})(x < @INFINITY@), y, x);
}}
"""
)
_HIGH = (
    INLINE
    + """\
{t} uopc_log_high_{t}({t} e, {t} f, {t}* low) {{
  {t} whole = e*@LN2_HIGH@, high = whole+f;
  *low = uopc_fma_{t}(e, uopc_splat_{t}(@LN2_LOW@), f-(high-whole));
  return high;
}}
"""
)
_LOG = (
    INLINE
    + """\
{t} uopc_log_{t}({t} x) {{
  {u} bits;
  {t} e = uopc_exponent_{t}(x, &bits), f = uopc_fraction_{t}(bits), low;
  {t} high = uopc_log_high_{t}(e, f, &low);
  return uopc_log_ends_{t}(x, high + uopc_log_rest_{t}(f, low));
}}
"""
)
_LOG2 = (
    INLINE
    + """\
{t} uopc_log2_{t}({t} x) {{
  {u} bits;
  {t} e = uopc_exponent_{t}(x, &bits), f = uopc_fraction_{t}(bits);
  {t} half = ({t})(({u})f & @HALF_BITS@), g = half*@LOG2E_HIGH@, high = e+g;
  {t} low = g-(high-e) + ((f-half)*@LOG2E@ + half*@LOG2E_LOW@);
  return uopc_log_ends_{t}(x, high + uopc_log2_rest_{t}(f, low));
}}
"""
)
_LOG1P = (
    INLINE
    + """\
{t} uopc_log1p_{t}({t} x) {{
  {u} bits;
  {t} u = x+@ONE@, e = uopc_exponent_{t}(u, &bits);
  {t} scale = ({t})((2*@BIAS@+2 - (bits >> @DIGITS@)) << @DIGITS@) * @QUARTER@;
  {t} a = x*scale, b = scale-@ONE@, f = a+b, part = f-a, low;
  {t} lost = (a-(f-part)) + (b-part), high = uopc_log_high_{t}(e, f, &low);
  low += uopc_fma_{t}(-lost, f, lost);
  {t} y = uopc_log_ends_{t}(u, high + uopc_log_rest_{t}(f, low));
  return ({t})(({u})y | (({u})x & @SIGN_BIT@));
}}
"""
)

_CONSTANTS = {
    "f32": {
        "DIGITS": "23",
        "BIAS": "127u",
        "SMALLEST": "0x1p-126f",
        "UP_BITS": "0x0b800000u",
        "ONE_BITS": "0x3f800000u",
        "ROOT_BITS": "0x3f3504f3u",
        "SHIFT_BITS": "0x4b000000u",
        "DIGIT_BITS": "0x7fffffu",
        "SIGN_BIT": "0x80000000u",
        "SHIFT": "8388735.0f",
        "ZERO": "0.0f",
        "QUARTER": "0.25f",
        "ONE": "1.0f",
        "INFINITY": "__builtin_inff()",
        "LN2_HIGH": "0x1.62e4p-1f",
        "LN2_LOW": "0x1.7f7d1cp-20f",
        "LOG2E": "0x1.715476p+0f",
        "LOG2E_HIGH": "0x1.716p+0f",
        "LOG2E_LOW": "-0x1.7135a8p-13f",
        "HALF_BITS": "0xfffff000u",
    },
    "f64": {
        "DIGITS": "52",
        "BIAS": "1023ull",
        "SMALLEST": "0x1p-1022",
        "UP_BITS": "0x0340000000000000ull",
        "ONE_BITS": "0x3ff0000000000000ull",
        "ROOT_BITS": "0x3fe6a09e667f3bcdull",
        "SHIFT_BITS": "0x4330000000000000ull",
        "DIGIT_BITS": "0xfffffffffffffull",
        "SIGN_BIT": "0x8000000000000000ull",
        "SHIFT": "4503599627371519.0",
        "ZERO": "0.0",
        "QUARTER": "0.25",
        "ONE": "1.0",
        "INFINITY": "__builtin_inf()",
        "LN2_HIGH": "0x1.62e42fefa38p-1",
        "LN2_LOW": "0x1.ef35793c7673p-45",
        "LOG2E": "0x1.71547652b82fep+0",
        "LOG2E_HIGH": "0x1.7154768p+0",
        "LOG2E_LOW": "-0x1.6a3e80f444178p-27",
        "HALF_BITS": "0xfffffffff8000000ull",
    },
}
_R = (
    "0x1.308ce472fd82ep-3", "0x1.3977ea08533cbp-3", "0x1.7468035628766p-3",
    "0x1.c71c487826216p-3", "0x1.2492494f5ef08p-2", "0x1.999999996dcd2p-2",
    "0x1.55555555555d8p-1",
)  # fmt: skip
_TERMS = {
    ("log", "f32"): (
        "-0x1.384734p-4f", "0x1.0860dp-3f", "-0x1.0f3fa6p-3f", "0x1.226dfcp-3f",
        "-0x1.5425c4p-3f", "0x1.99a41ap-3f", "-0x1.000432p-2f", "0x1.55555p-2f",
        "-0x1.fffff8p-2f",
    ),
    ("log2", "f32"): (
        "-0x1.c3673p-4f", "0x1.7e0e24p-3f", "-0x1.877ae4p-3f", "0x1.a2e684p-3f",
        "-0x1.eab182p-3f", "0x1.277ef4p-2f", "-0x1.715ac8p-2f", "0x1.ec7094p-2f",
        "-0x1.71547p-1f",
    ),
    ("log", "f64"): _R,
    ("log2", "f64"): _R,
}  # fmt: skip
_SUMS = {"log": "w+low", "log2": "uopc_fma_{t}(w, uopc_splat_{t}(@LOG2E@), low)"}


def _helpers(name: str, *texts: str) -> Helpers:
    """``texts`` and what they call, with the rest of the logarithm called ``name``."""
    found = {}
    for e, constants in _CONSTANTS.items():
        terms = horner("f" if e == "f32" else "z", _TERMS[name, e])
        own = {"NAME": name, "TERMS": terms, "SUM": _SUMS[name], **constants}
        parts = (*FMA[e], SPLAT, SELECT, STEP, _EXPONENT, _REST[e], _ENDS, *texts)
        found[e] = tuple(fill(part, own) for part in parts)
    return found


LOG = _helpers("log", _FRACTION, _HIGH, _LOG)
LOG2 = _helpers("log2", _FRACTION, _LOG2)
LOG1P = _helpers("log", _HIGH, _LOG1P)
