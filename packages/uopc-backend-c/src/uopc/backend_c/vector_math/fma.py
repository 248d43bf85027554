"""``a*b+c`` rounded once, on vectors.

With multiply-add instructions it is one of them for vectors of 16, 32 and 64 bytes:
clang has a builtin for any vector, gcc one for each. Without them an f32 is computed
in f64, where the product is exact (the sum is rounded twice, which the bounds of the
functions built on it allow), and an f64 is a plain ``a*b+c``: a function of f64 must
not need the single rounding.
"""

from __future__ import annotations

_HEAD = (
    "static inline __attribute__((always_inline)) {t}"
    " uopc_fma_{t}({t} a, {t} b, {t} c) {{\n"
)
# __has_builtin itself is missing from gcc before 10.
_ANY_VECTOR = """\
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#ifdef __has_builtin
#if __has_builtin(__builtin_elementwise_fma)
#define UOPC_ANY_FMA
#endif
#endif
#endif
"""
_TAIL = """\
#elif defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  {t} r = {{0}};
  for (int i = 0; i < {w}; i++) r[i] = __builtin_fma(a[i], b[i], c[i]);
  return r;
#else
"""
_F32 = (
    _HEAD
    + """\
#if defined(UOPC_ANY_FMA)
  return __builtin_elementwise_fma(a, b, c);
#elif defined(__FMA__) && {w} == 4
  return __builtin_ia32_vfmaddps(a, b, c);
#elif defined(__FMA__) && {w} == 8
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__AVX512F__) && {w} == 16
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
"""
    + _TAIL.replace("fma(a", "fmaf(a")
    + """\
  typedef double wide __attribute__((vector_size(8*{w})));
  wide sum = __builtin_convertvector(a, wide)*__builtin_convertvector(b, wide)
    + __builtin_convertvector(c, wide);
  return __builtin_convertvector(sum, {t});
#endif
}}
"""
)
_F64 = (
    _HEAD
    + """\
#if defined(UOPC_ANY_FMA)
  return __builtin_elementwise_fma(a, b, c);
#elif defined(__FMA__) && {w} == 2
  return __builtin_ia32_vfmaddpd(a, b, c);
#elif defined(__FMA__) && {w} == 4
  return __builtin_ia32_vfmaddpd256(a, b, c);
#elif defined(__AVX512F__) && {w} == 8
  return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);
"""
    + _TAIL
    + """\
  return a*b+c;
#endif
}}
"""
)

FMA: dict[str, tuple[str, ...]] = {
    "f32": (_ANY_VECTOR, _F32),
    "f64": (_ANY_VECTOR, _F64),
}
"""The helpers of ``uopc_fma_{t}``, by the element's type."""
