"""tanh, as ``x + x**3 P(x**2)`` below 1, and as ``1 - 2/(exp(2|x|)+1)`` from there on.

So do Cody and Waite (*Software Manual for the Elementary Functions*, 1980), who change
over sooner: at 1 neither way needs more digits than the type has to be within an ulp
(f32) or 1.4 (f64). Both are computed for all lanes. P has the least relative error of
tanh, 2**-27.7 (f32) and 2**-56.1 (f64).

exp is made as in exp.py, but of ``r = |x| - n ln(2)/2`` and without the second part of
ln 2: from 1 on, less than a third of its relative error is left. Its polynomial has the
least relative error for twice its variable, 2**-28.1 and 2**-57.7, with the coefficient
1 given. Beyond the limit the result is 1.

Both were fitted by Lawson's algorithm (1961), with the coefficients rounded one by one.
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
    pairs,
)

_TANH = (
    INLINE
    + """\
{t} uopc_tanh_{t}({t} x) {{
  {u} sign = ({u})x & @SIGN_BIT@;
  {t} size = ({t})(({u})x ^ sign), y = uopc_vmin_{t}(uopc_splat_{t}(@LIMIT@), size);
  {t} shifted = uopc_step_{t}(y, uopc_splat_{t}(@LOG2E@), @SHIFT@), n = shifted-@SHIFT@;
  {t} r = uopc_fma_{t}(n, uopc_splat_{t}(-@LN2@), y), rr = r*r;
@FAR@
  {t} power = ({t})(({u})shifted << @DIGITS@);
  {t} far = @ONE@-@TWO@/uopc_step_{t}(power, e, @ONE@);
  {t} xx = size*size, xxxx = xx*xx;
@NEAR@
  {t} near = uopc_fma_{t}(size*xx, p, size);
  {t} result = uopc_select_{t}(({m})(size < @ONE@), near, far);
  return ({t})(({u})result | sign);
}}
"""
)

# LOG2E is 2/ln 2, and LN2 half of ln 2.
_CONSTANTS = {
    "f32": {
        "SIZE": "4",
        "KIND": "ps",
        "SIGN_BIT": "0x80000000u",
        "DIGITS": "23",
        "LIMIT": "10.0f",
        "SHIFT": "12583039.0f",
        "LOG2E": "0x1.715476p+1f",
        "LN2": "0x1.62e43p-2f",
        "ONE": "1.0f",
        "TWO": "2.0f",
    },
    "f64": {
        "SIZE": "8",
        "KIND": "pd",
        "SIGN_BIT": "0x8000000000000000ull",
        "DIGITS": "52",
        "LIMIT": "20.0",
        "SHIFT": "6755399441056767.0",
        "LOG2E": "0x1.71547652b82fep+1",
        "LN2": "0x1.62e42fefa39efp-2",
        "ONE": "1.0",
        "TWO": "2.0",
    },
}
_FAR = {
    "f32": (
        "0x1.6a496ap-4f", "0x1.123e54p-2f", "0x1.5558bcp-1f", "0x1.55548cp+0f",
        "0x1.fffffcp+0f", "2.0f", "1.0f",
    ),
    "f64": (
        "0x1.ad7c03ba6542ep-15", "0x1.28b08a6cbd3d7p-12", "0x1.71df2b502b823p-10",
        "0x1.a01996f8501fbp-8", "0x1.a01a01262e46dp-6", "0x1.6c16c1852bc71p-4",
        "0x1.1111111128bccp-2", "0x1.55555555504b5p-1", "0x1.55555555554f5p+0",
        "0x1.000000000000ap+1", "2.0", "1.0",
    ),
}  # fmt: skip
_NEAR = {
    "f32": (
        "-0x1.77e7eap-12f", "0x1.2daa38p-9f", "-0x1.0462cap-7f", "0x1.600a58p-6f",
        "-0x1.b9624ap-5f", "0x1.110be4p-3f", "-0x1.55553cp-2f",
    ),
    "f64": (
        "-0x1.0d4121d437ea6p-24", "0x1.5f5e93ee53b56p-21", "-0x1.caf920f027947p-19",
        "0x1.9e1a2a00f34d4p-17", "-0x1.2eb71c86ad887p-15", "0x1.8d7c6c5ff6e04p-14",
        "-0x1.f336cc1ac315ep-13", "0x1.352147746d157p-11", "-0x1.7d9bce0d6c5f1p-10",
        "0x1.d6d3103e57773p-9", "-0x1.226e2ec305357p-7", "0x1.664f4836e2616p-6",
        "-0x1.ba1ba1b813398p-5", "0x1.111111110d869p-3", "-0x1.5555555555510p-2",
    ),
}  # fmt: skip


def _helpers() -> Helpers:
    found = {}
    for e, own in _CONSTANTS.items():
        far = pairs("e", "r", "rr", _FAR[e])
        near = pairs("p", "xx", "xxxx", _NEAR[e])
        every = {**own, "FAR": far, "NEAR": near}
        parts = (*FMA[e], SPLAT, SELECT, MIN, STEP, _TANH)
        found[e] = tuple(fill(part, every) for part in parts)
    return found


TANH = _helpers()
