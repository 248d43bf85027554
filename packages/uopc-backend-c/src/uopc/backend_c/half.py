"""Casts between half types and wider ones, on bits, for any C compiler.

``_Float16`` is missing from many compilers, and those that have it may keep excess
digits between operations. These functions have no branches, so they vectorise.
"""

from __future__ import annotations

from uopc.backend_c.spelling import Spelling

# Shifted into place, the exponent of an f16 is 112 too small; scaling by 2**112 mends
# it, for subnormal numbers too, and leaves only infinity and NaN to be marked.
_F16_TO_F32 = """\
static inline float uopc_f16_to_f32(unsigned short h) {{
  union {{ unsigned u; float f; }} v = {{ (h & 0x7fffu) << 13 }};
  v.f *= 0x1p112f;
  v.u |= (v.f >= 65536.0f ? 0x7f800000u : 0u) | (h & 0x8000u) << 16;
  return v.f;
}}
"""
# Normal numbers: rebias, add just under half a unit (half if the last bit is odd),
# cut. Subnormal ones: adding 0.5 has the addition round to their unit, 2**-24.
_F32_TO_F16 = """\
static inline unsigned short uopc_f32_to_f16(float x) {{
  union {{ float f; unsigned u; }} v = {{ x }}, small;
  unsigned sign = v.u >> 16 & 0x8000u;
  v.u &= 0x7fffffffu;
  small.f = v.f + 0.5f;
  unsigned normal = (v.u - (112u << 23) + 0xfffu + (v.u >> 13 & 1u)) >> 13;
  unsigned bits = v.u < 113u << 23 ? small.u - (126u << 23) : normal;
  bits = v.u >= 143u << 23 ? (v.u > 0x7f800000u ? 0x7e00u : 0x7c00u) : bits;
  return (unsigned short)(bits | sign);
}}
"""
_BF16_TO_F32 = """\
static inline float uopc_bf16_to_f32(unsigned short h) {{
  union {{ unsigned u; float f; }} v = {{ (unsigned)h << 16 }};
  return v.f;
}}
"""
_F32_TO_BF16 = """\
static inline unsigned short uopc_f32_to_bf16(float x) {{
  union {{ float f; unsigned u; }} v = {{ x }};
  unsigned bits = (v.u + 0x7fffu + (v.u >> 16 & 1u)) >> 16;
  return (unsigned short)(x != x ? 0x7fc0u : bits);
}}
"""
# Rounding twice is right if the first time is to odd: the last bit then says that
# something was cut off, so the second rounding sees no tie that was none.
_F64_TO_ODD = """\
static inline float uopc_f64_to_odd(double x) {{
  union {{ float f; unsigned u; }} v = {{ (float)x }};
  double back = v.f;
  v.u -= __builtin_fabs(back) > __builtin_fabs(x);
  v.u |= back != x;
  return v.f;
}}
"""

HALF_CASTS: dict[tuple[str, str], Spelling] = {
    ("f16", "f32"): Spelling("uopc_f16_to_f32({0})", _F16_TO_F32),
    ("f32", "f16"): Spelling("uopc_f32_to_f16({0})", _F32_TO_F16),
    ("bf16", "f32"): Spelling("uopc_bf16_to_f32({0})", _BF16_TO_F32),
    ("f32", "bf16"): Spelling("uopc_f32_to_bf16({0})", _F32_TO_BF16),
    ("f64", "f16"): Spelling(
        "uopc_f32_to_f16(uopc_f64_to_odd({0}))", (_F64_TO_ODD, _F32_TO_F16)
    ),
    ("f64", "bf16"): Spelling(
        "uopc_f32_to_bf16(uopc_f64_to_odd({0}))", (_F64_TO_ODD, _F32_TO_BF16)
    ),
}
