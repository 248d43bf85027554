"""sin and cos.

``r = x - n pi/2`` with n the nearest integer, whose last two bits say which of sin r
and cos r is the result, and its sign. pi/2 is a sum of numbers (Cody and Waite,
*Software Manual for the Elementary Functions*, 1980), and r is kept as two, high and
low, because much of x may cancel:

- f32: three numbers of 24 digits. ``x - n P1`` is a multiple of 2**-24 below 1, so a
  multiply-add leaves it exact; of ``n P2`` both parts are known.
- f64: three of 33 digits, which times n are exact, and a fourth.

Both sin and cos of r are polynomials of r**2, fitted with sollya's fpminimax on
``|r| < 1.02 pi/4`` to the least relative error, with the coefficients of r, and 1 and
r**2, given: 2**-32.2 and 2**-32.6 (f32), 2**-57.5 and 2**-63.5 (f64).

Beyond 2**17 (f32) and 2**20 (f64), and for infinities and NaN, each such lane is
computed by the system's mathematics library, in f64.
"""

from __future__ import annotations

from uopc.backend_c.vector_math.fma import FMA
from uopc.backend_c.vector_math.lanes import (
    ANY,
    INLINE,
    SELECT,
    SPLAT,
    STEP,
    Helpers,
    fill,
    horner,
)

_SIN_PART = (
    INLINE
    + """\
{t} uopc_sin_part_{t}({t} r, {t} low, {t} z) {{
@SIN_TERMS@
  return r + uopc_fma_{t}(r*z, p, low);
}}
"""
)
_COS_PART = (
    INLINE
    + """\
{t} uopc_cos_part_{t}({t} r, {t} low, {t} z) {{
@COS_TERMS@
  {t} h = @HALF@*z, high = @ONE@-h;
  return high + (uopc_fma_{t}(z*z, p, -r*low) + ((@ONE@-high)-h));
}}
"""
)
_TURN = {
    "f32": INLINE
    + """\
{t} uopc_turn_{t}({t} x, {t} n, {t}* low) {{
  {t} p2 = uopc_splat_{t}(0x1.777a5cp-25f), t = n*p2;
  {t} a = uopc_fma_{t}(n, uopc_splat_{t}(-0x1.921fb6p+0f), x), r = a+t;
  *low = uopc_fma_{t}(n, p2, -t) + (t-(r-a));
  *low = uopc_fma_{t}(n, uopc_splat_{t}(0x1.ee59dap-50f), *low);
  return r;
}}
""",
    "f64": INLINE
    + """\
{t} uopc_turn_{t}({t} x, {t} n, {t}* low) {{
  {t} a = x-n*0x1.921fb544p+0, t = n*0x1.0b4611a6p-34, b = a-t, lost = (a-b)-t;
  t = n*0x1.3198a2ep-69;
  {t} r = b-t;
  lost += (b-r)-t;
  *low = uopc_fma_{t}(n, uopc_splat_{t}(-0x1.b839a252049c1p-104), lost);
  return r;
}}
""",
}
_WHOLE = (
    INLINE
    + """\
{t} uopc_@NAME@_{t}({t} x) {{
  {t} shifted = uopc_step_{t}(x, uopc_splat_{t}(@INVERSE@), @MAGIC@), low;
  {t} r = uopc_turn_{t}(x, shifted-@MAGIC@, &low), z = r*r;
  {u} quarter = ({u})shifted@QUARTER@;
  {t} s = uopc_sin_part_{t}(r, low, z), c = uopc_cos_part_{t}(r, low, z);
  {t} y = uopc_select_{t}(-({m})(quarter & 1), c, s);
  y = ({t})(({u})y ^ (quarter & 2) << @SIGN@);@ZERO@
  {m} far = ~(({m})(x <= @FAR@) & ({m})(x >= -@FAR@));
  if (__builtin_expect(uopc_any_{t}(far), 0)) {{
    {t} from = x, to = y;  // only these need an address
#pragma GCC unroll 1
    for (int i = 0; i < {w}; i++)
      if (far[i]) to[i] = __builtin_@NAME@(from[i]);
    y = to;
  }}
  return y;
}}
"""
)
# The sum of r and low has no sign if both are 0.
_NAMED = {
    "sin": {
        "NAME": "sin",
        "QUARTER": "",
        "ZERO": "\n  y = uopc_select_{t}(({m})(x == 0), x, y);",
    },
    "cos": {"NAME": "cos", "QUARTER": " + 1", "ZERO": ""},
}
_CONSTANTS = {
    "f32": {
        "INVERSE": "0x1.45f306p-1f",
        "MAGIC": "12582912.0f",
        "SIGN": "30",
        "FAR": "131072.0f",
        "HALF": "0.5f",
        "ONE": "1.0f",
        "SIZE": "4",
        "SIN_TERMS": horner(
            "z",
            ("0x1.768002p-19f", "-0x1.a0438cp-13f", "0x1.11116p-7f", "-0x1.555556p-3f"),
        ),
        "COS_TERMS": horner(
            "z", ("0x1.99989cp-16f", "-0x1.6c0b04p-10f", "0x1.555548p-5f")
        ),
    },
    "f64": {
        "INVERSE": "0x1.45f306dc9c883p-1",
        "MAGIC": "6755399441055744.0",
        "SIGN": "62",
        "FAR": "1048576.0",
        "HALF": "0.5",
        "ONE": "1.0",
        "SIZE": "8",
        "SIN_TERMS": horner(
            "z",
            (
                "0x1.5d6b283a36e63p-33", "-0x1.ae5ddd7ca6875p-26",
                "0x1.71de34ca50305p-19", "-0x1.a01a019b4b997p-13",
                "0x1.111111110f26p-7", "-0x1.5555555555545p-3",
            ),
        ),
        "COS_TERMS": horner(
            "z",
            (
                "-0x1.8f7ca001ca6c6p-37", "0x1.1ee98b0c62e6ap-29",
                "-0x1.27e4f77b0f67p-22", "0x1.a01a019beba0bp-16",
                "-0x1.6c16c16c1499p-10", "0x1.5555555555548p-5",
            ),
        ),
    },
}  # fmt: skip


def _helpers(name: str) -> Helpers:
    found = {}
    for e, constants in _CONSTANTS.items():
        own = (_TURN[e], _SIN_PART, _COS_PART, ANY, _WHOLE)
        parts = (*FMA[e], SPLAT, SELECT, STEP, *own)
        found[e] = tuple(fill(part, {**constants, **_NAMED[name]}) for part in parts)
    return found


SIN = _helpers("sin")
COS = _helpers("cos")
