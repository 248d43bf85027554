"""tanh, as ``M/(M+1)`` with ``2M = exp(2|x|)-1``.

``M = (s-1/2) + s r + s w`` where ``2s = 2**n`` and ``exp(r) = 1+r+w`` as in exp, but
with polynomials fitted to the least error of ``exp(r)-1``: 2**-31.1 and 2**-61.5. The
first two are exact, and their sum as two numbers too (Dekker, *A floating-point
technique for extending the available precision*, 1971), so M is known to more digits
than it has.

With ``q = 1 - 1/(M+1)`` as it is rounded, what is missing of ``q (M+1)`` is
``M (1-q) - q``: ``1-q`` is exact, and so is nearly all of the rest in a multiply-add.
Times ``1/(M+1)`` it is added to q, which leaves one rounding, without a branch for
small numbers. The very smallest, of which q has few digits, are their own tanh, as
nearly as it can be said; that of numbers beyond the limit is 1.
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

_TANH = (
    INLINE
    + """\
{t} uopc_tanh_{t}({t} x) {{
  {u} sign = ({u})x & @SIGN_BIT@;
  {t} size = ({t})(({u})x ^ sign);
  {t} y = uopc_vmin_{t}(uopc_splat_{t}(@LIMIT@), size+size);
  {t} shifted = uopc_step_{t}(y, uopc_splat_{t}(@LOG2E@), @SHIFT@), n = shifted-@SHIFT@;
@REDUCE@
@TERMS@
  {t} s = ({t})(({u})shifted << @DIGITS@), a = s-@HALF@, b = s*r, c = a+b;
  {t} w = uopc_fma_{t}(s, uopc_fma_{t}(r*r, p, lost), b-(c-a));
  {t} high = c+w, low = w-(high-c);
  {t} inverse = @ONE@/(high+@ONE@), q = @ONE@-inverse, rest = @ONE@-q;
  rest = uopc_fma_{t}(rest, low, uopc_fma_{t}(rest, high, -q));
  {t} result = uopc_fma_{t}(rest, inverse, q);
  result = uopc_select_{t}(({m})(size < @SMALL@), size, result);
  return ({t})(({u})result | sign);
}}
"""
)

# n times the first part of ln 2 is exact. The second is so small in f32 that it can be
# added to w; in f64 it belongs to r, and w gets what r loses by it.
_REDUCE = {
    "f32": """\
  {t} r = uopc_fma_{t}(n, uopc_splat_{t}(-0x1.62e43p-1f), y), lost = n*0x1.05c61p-29f;\
""",
    "f64": """\
  {t} exact = uopc_fma_{t}(n, uopc_splat_{t}(-0x1.62e42fefa38p-1), y);
  {t} ln2 = uopc_splat_{t}(-0x1.ef35793c7673p-45), r = uopc_fma_{t}(n, ln2, exact);
  {t} lost = uopc_fma_{t}(n, ln2, exact-r);\
""",
}
_CONSTANTS = {
    "f32": {
        "SIZE": "4",
        "KIND": "ps",
        "SIGN_BIT": "0x80000000u",
        "DIGITS": "23",
        "LIMIT": "20.0f",
        "SHIFT": "12583038.0f",
        "LOG2E": "0x1.715476p+0f",
        "HALF": "0.5f",
        "ONE": "1.0f",
        "SMALL": "0x1p-12f",
    },
    "f64": {
        "SIZE": "8",
        "KIND": "pd",
        "SIGN_BIT": "0x8000000000000000ull",
        "DIGITS": "52",
        "LIMIT": "40.0",
        "SHIFT": "6755399441056766.0",
        "LOG2E": "0x1.71547652b82fep+0",
        "HALF": "0.5",
        "ONE": "1.0",
        "SMALL": "0x1p-27",
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
        every = {**own, "TERMS": horner("r", _TERMS[e]), "REDUCE": _REDUCE[e]}
        parts = (*FMA[e], SPLAT, SELECT, MIN, STEP, _TANH)
        found[e] = tuple(fill(part, every) for part in parts)
    return found


TANH = _helpers()
