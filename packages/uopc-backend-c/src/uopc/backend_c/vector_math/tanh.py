"""tanh, as ``N/(N+2)`` with ``N = exp(2|x|)-1``.

``N = (s-1) + s r + s w`` where ``s = 2**n`` and ``exp(r) = 1+r+w`` as in exp, but with
polynomials fitted to the least error of ``exp(r)-1``: 2**-31.1 and 2**-61.5. The first
two are exact, and their sum as two numbers too (Dekker, *A floating-point technique for
extending the available precision*, 1971), so N and N+2 are known to more digits than
they have; the remainder of the division by the first number of each corrects the
quotient. So small results are as good as large ones, without a branch. Where the limit
is, the result rounds to 1.
"""

from __future__ import annotations

from uopc.backend_c.vector_math.exp import EXP_CONSTANTS
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

_TANH = (
    INLINE
    + """\
{t} uopc_tanh_{t}({t} x) {{
  {u} sign = ({u})x & @SIGN_BIT@;
  {t} y = @TWO@*({t})(({u})x ^ sign), limit = uopc_splat_{t}(@LIMIT@);
  y = uopc_select_{t}(({m})(limit < y), limit, y);
  {t} shifted = uopc_step_{t}(y, uopc_splat_{t}(@LOG2E@), @SHIFT@), n = shifted-@SHIFT@;
  {t} s = ({t})(({u})shifted << @DIGITS@), below = uopc_splat_{t}(-@LN2_LOW@);
  {t} exact = uopc_fma_{t}(n, uopc_splat_{t}(-@LN2_HIGH@), y);
  {t} r = uopc_fma_{t}(n, below, exact), lost = uopc_fma_{t}(n, below, exact-r);
@TERMS@
  {t} w = uopc_fma_{t}(r*r, p, lost), t = s-@ONE@, high = t+s*r;
  w = uopc_fma_{t}(s, w, s*r-(high-t));
  {t} above = high+w, above_low = w-(above-high);
  {t} under = above+@TWO@, two = under-above;
  {t} under_low = above-(under-two) + (@TWO@-two) + above_low;
  {t} inverse = @ONE@/under, q = above*inverse;
  {t} rest = uopc_fma_{t}(-q, under, above) + uopc_fma_{t}(-q, under_low, above_low);
  return ({t})(({u})uopc_fma_{t}(rest, inverse, q) | sign);
}}
"""
)

_CONSTANTS = {
    "f32": {
        "SIGN_BIT": "0x80000000u",
        "LIMIT": "20.0f",
        "SHIFT": "12583039.0f",
        "ONE": "1.0f",
        "TWO": "2.0f",
    },
    "f64": {
        "SIGN_BIT": "0x8000000000000000ull",
        "LIMIT": "40.0",
        "SHIFT": "6755399441056767.0",
        "ONE": "1.0",
        "TWO": "2.0",
    },
}
_TERMS = {
    "f32": (
        "0x1.9e2a52p-13f", "0x1.6d495p-10f", "0x1.1112fcp-7f", "0x1.5554ecp-5f",
        "0x1.555554p-3f", "0.5f",
    ),
    "f64": (
        "0x1.1f0f04657d494p-29", "0x1.af624017e4dc2p-26", "0x1.27e51bc4f5f06p-22",
        "0x1.71ddf69ac2c9dp-19", "0x1.a01a01899c816p-16", "0x1.a01a01b071fc6p-13",
        "0x1.6c16c16c1b9c4p-10", "0x1.111111110f5b4p-7", "0x1.555555555554bp-5",
        "0x1.5555555555559p-3", "0.5",
    ),
}  # fmt: skip


def _helpers() -> Helpers:
    found = {}
    for e, own in _CONSTANTS.items():
        every = {**EXP_CONSTANTS[e], **own, "TERMS": horner("r", _TERMS[e])}
        parts = (*FMA[e], SPLAT, SELECT, STEP, _TANH)
        found[e] = tuple(fill(part, every) for part in parts)
    return found


TANH = _helpers()
