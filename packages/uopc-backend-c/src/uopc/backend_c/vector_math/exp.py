"""exp and exp2.

``exp(x) = 2**n * exp(r)`` with n the integer next to ``x / ln 2`` and r the rest,
``x - n ln 2`` (Cody and Waite, *Software Manual for the Elementary Functions*, 1980):
ln 2 is a sum of two numbers, the first with so few digits that n times it is exact.
``exp(r)`` is a polynomial, fitted with sollya's fpminimax to the least relative error
on ``|r| < 1.01 ln 2 / 2``, with the coefficients 1, 1 given: 2**-28.1 (f32) and
2**-57.7 (f64). exp2 is the same with ``r = x - n`` and the coefficient 1 given:
2**-27.9 and 2**-57.1.

n is rounded by adding 1.5 * 2**23 (2**52), which leaves it in the lowest bits. Twice
the bias of an exponent is added with it, so that both halves of ``n + 2 bias`` are the
exponents of powers of two: a product with both reaches infinity, and the subnormal
numbers with a single rounding. Where the result is 0, as for what is masked with -inf,
0 is what all of it is computed of: some processors take a hundred times as long for a
product that is too small.
"""

from __future__ import annotations

from uopc.backend_c.vector_math.fma import FMA
from uopc.backend_c.vector_math.lanes import (
    INLINE,
    MIN,
    SELECT,
    SPLAT,
    STEP,
    Helpers,
    fill,
    horner,
)

SCALE = (
    INLINE
    + """\
{t} uopc_scale_{t}({t} p, {t} shifted) {{
  {u} both = ({u})shifted, half = both >> 1;
  return p * ({t})(half << @DIGITS@) * ({t})((both - half) << @DIGITS@);
}}
"""
)
"""``p * 2**n``, where n and twice the bias are in the lowest bits of the other."""

_EXP = (
    INLINE
    + """\
{t} uopc_exp_{t}({t} x) {{
  {m} some = ~({m})(x < uopc_splat_{t}(@EXP_LOW@));
  x = ({t})(({m})uopc_vmin_{t}(uopc_splat_{t}(@EXP_HIGH@), x) & some);
  {t} shifted = uopc_step_{t}(x, uopc_splat_{t}(@LOG2E@), @MAGIC@), n = shifted-@MAGIC@;
  {t} r = uopc_fma_{t}(n, uopc_splat_{t}(-@LN2_HIGH@), x);
  r = uopc_fma_{t}(n, uopc_splat_{t}(-@LN2_LOW@), r);
@TERMS@
  return ({t})(({m})uopc_scale_{t}(uopc_step_{t}(p, r, @ONE@), shifted) & some);
}}
"""
)
_EXP2 = (
    INLINE
    + """\
{t} uopc_exp2_{t}({t} x) {{
  {m} some = ~({m})(x < uopc_splat_{t}(@EXP2_LOW@));
  x = ({t})(({m})uopc_vmin_{t}(uopc_splat_{t}(@EXP2_HIGH@), x) & some);
  {t} shifted = x+@MAGIC@, r = x-(shifted-@MAGIC@);
@TERMS@
  return ({t})(({m})uopc_scale_{t}(uopc_step_{t}(p, r, @ONE@), shifted) & some);
}}
"""
)

_CONSTANTS = {
    "f32": {
        "SIZE": "4",
        "KIND": "ps",
        "DIGITS": "23",
        "ONE": "1.0f",
        "MAGIC": "12583166.0f",
        "LOG2E": "0x1.715476p+0f",
        "LN2_HIGH": "0x1.62e4p-1f",
        "LN2_LOW": "0x1.7f7d1cp-20f",
        "EXP_LOW": "-104.0f",
        "EXP_HIGH": "89.0f",
        "EXP2_LOW": "-151.0f",
        "EXP2_HIGH": "129.0f",
    },
    "f64": {
        "SIZE": "8",
        "KIND": "pd",
        "DIGITS": "52",
        "ONE": "1.0",
        "MAGIC": "6755399441057790.0",
        "LOG2E": "0x1.71547652b82fep+0",
        "LN2_HIGH": "0x1.62e42fefa38p-1",
        "LN2_LOW": "0x1.ef35793c7673p-45",
        "EXP_LOW": "-746.0",
        "EXP_HIGH": "710.0",
        "EXP2_LOW": "-1076.0",
        "EXP2_HIGH": "1025.0",
    },
}
_EXP_TERMS = {
    "f32": (
        "0x1.696e4ep-10f", "0x1.123f7cp-7f", "0x1.555a12p-5f", "0x1.55548ap-3f",
        "0x1.fffffap-2f", "1.0f",
    ),
    "f64": (
        "0x1.ad8e8edee4513p-26", "0x1.28b1f22b53b8fp-22", "0x1.71df21f8e6519p-19",
        "0x1.a019953c73d65p-16", "0x1.a01a0129149bep-13", "0x1.6c16c185ec859p-10",
        "0x1.1111111128792p-7", "0x1.555555555007p-5", "0x1.55555555554f5p-3",
        "0x1.000000000000bp-1", "1.0",
    ),
}  # fmt: skip
_EXP2_TERMS = {
    "f32": (
        "0x1.3fd238p-13f", "0x1.5f13d2p-10f", "0x1.3b307ep-7f", "0x1.c6af6ap-5f",
        "0x1.ebfbd8p-3f", "0x1.62e43p-1f",
    ),
    "f64": (
        "0x1.e94f85e09c61ap-32", "0x1.e62380f067c8p-28", "0x1.b5253e34a599cp-24",
        "0x1.62bfc2ee58934p-20", "0x1.ffcbfc57ea706p-17", "0x1.43091310b1d0bp-13",
        "0x1.5d87fe78a1b59p-10", "0x1.3b2ab6fb9f7d5p-7", "0x1.c6b08d704a11ep-5",
        "0x1.ebfbdff82c5a8p-3", "0x1.62e42fefa39efp-1",
    ),
}  # fmt: skip


def _helpers(text: str, terms: dict[str, tuple[str, ...]]) -> Helpers:
    return {
        e: tuple(
            fill(part, {**_CONSTANTS[e], "TERMS": horner("r", terms[e])})
            for part in (*FMA[e], SPLAT, SELECT, MIN, STEP, SCALE, text)
        )
        for e in _CONSTANTS
    }


EXP = _helpers(_EXP, _EXP_TERMS)
EXP2 = _helpers(_EXP2, _EXP2_TERMS)
