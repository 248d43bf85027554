"""Casts between half types and wider ones, on bits, for any C compiler.

``_Float16`` is missing from many compilers, and those that have it may keep excess
digits between operations. These functions have no branches, so they vectorise.
"""

from __future__ import annotations

from uopc.backend_c.spelling import Spelling
from uopc.backend_c.types import INLINE

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

# The same on vectors, where a choice is made by masks.
_VECTORS = """\
typedef float f32x{w} __attribute__((vector_size(4*{w})));
typedef double f64x{w} __attribute__((vector_size(8*{w})));
typedef int i32x{w} __attribute__((vector_size(4*{w})));
typedef unsigned u32x{w} __attribute__((vector_size(4*{w})));
typedef long long i64x{w} __attribute__((vector_size(8*{w})));
typedef unsigned short u16x{w} __attribute__((vector_size(2*{w})));
"""
_F16_TO_F32_V = """\
f32x{w} uopc_f16_to_f32_x{w}(u16x{w} h) {{
  u32x{w} x = __builtin_convertvector(h, u32x{w});
  f32x{w} v = (f32x{w})((x & 0x7fffu) << 13) * 0x1p112f;
  u32x{w} large = (u32x{w})(v >= 65536.0f) & 0x7f800000u;
  return (f32x{w})((u32x{w})v | large | (x & 0x8000u) << 16);
}}
"""
_F32_TO_F16_V = """\
u16x{w} uopc_f32_to_f16_x{w}(f32x{w} x) {{
  u32x{w} v = (u32x{w})x, sign = v >> 16 & 0x8000u;
  v &= 0x7fffffffu;
  u32x{w} small = (u32x{w})((f32x{w})v + 0.5f) - (126u << 23);
  u32x{w} normal = (v - (112u << 23) + 0xfffu + (v >> 13 & 1u)) >> 13;
  u32x{w} tiny = (u32x{w})((i32x{w})v < (113 << 23));
  u32x{w} huge = (u32x{w})((i32x{w})v >= (143 << 23));
  u32x{w} nan = (u32x{w})((i32x{w})v > 0x7f800000) & 0x200u;
  u32x{w} bits = (small & tiny) | (normal & ~tiny);
  bits = (bits & ~huge) | (huge & (nan | 0x7c00u));
  return __builtin_convertvector(bits | sign, u16x{w});
}}
"""
_BF16_TO_F32_V = """\
f32x{w} uopc_bf16_to_f32_x{w}(u16x{w} h) {{
  return (f32x{w})(__builtin_convertvector(h, u32x{w}) << 16);
}}
"""
_F32_TO_BF16_V = """\
u16x{w} uopc_f32_to_bf16_x{w}(f32x{w} x) {{
  u32x{w} v = (u32x{w})x, nan = (u32x{w})(x != x);
  u32x{w} bits = (v + 0x7fffu + (v >> 16 & 1u)) >> 16;
  bits = (bits & ~nan) | (nan & 0x7fc0u);
  return __builtin_convertvector(bits, u16x{w});
}}
"""
_F64_TO_ODD_V = """\
f32x{w} uopc_f64_to_odd_x{w}(f64x{w} x) {{
  f32x{w} near = __builtin_convertvector(x, f32x{w});
  f64x{w} back = __builtin_convertvector(near, f64x{w});
  i64x{w} off = (i64x{w})(back != x);
  f64x{w} size = (f64x{w})((i64x{w})x & 0x7fffffffffffffffLL);
  i64x{w} over = (i64x{w})((f64x{w})((i64x{w})back & 0x7fffffffffffffffLL) > size);
  i32x{w} bits = (i32x{w})near + __builtin_convertvector(over, i32x{w});
  return (f32x{w})(bits | (__builtin_convertvector(off, i32x{w}) & 1));
}}
"""


def _cast(*steps: tuple[str, str, str]) -> Spelling:
    """A cast in steps: of each the name, and its functions of scalars and vectors."""
    scalar = vector = "{0}"
    for name, _, _ in steps:
        scalar, vector = f"uopc_{name}({scalar})", f"uopc_{name}_x{{w}}({vector})"
    return Spelling(
        scalar,
        tuple(one for _, one, _ in steps),
        vector,
        (_VECTORS, *(INLINE + many for _, _, many in steps)),
    )


_TO_ODD = ("f64_to_odd", _F64_TO_ODD, _F64_TO_ODD_V)
_TO_F16 = ("f32_to_f16", _F32_TO_F16, _F32_TO_F16_V)
_TO_BF16 = ("f32_to_bf16", _F32_TO_BF16, _F32_TO_BF16_V)

HALF_CASTS: dict[tuple[str, str], Spelling] = {
    ("f16", "f32"): _cast(("f16_to_f32", _F16_TO_F32, _F16_TO_F32_V)),
    ("f32", "f16"): _cast(_TO_F16),
    ("bf16", "f32"): _cast(("bf16_to_f32", _BF16_TO_F32, _BF16_TO_F32_V)),
    ("f32", "bf16"): _cast(_TO_BF16),
    ("f64", "f16"): _cast(_TO_ODD, _TO_F16),
    ("f64", "bf16"): _cast(_TO_ODD, _TO_BF16),
}
