static inline float uopc_max_f32(float a, float b) {
  return a > b || a != a ? a : b;
}

#pragma GCC diagnostic ignored "-Wpsabi"
typedef float f32x4 __attribute__((vector_size(16)));
typedef int i32x4 __attribute__((vector_size(16)));
typedef unsigned u32x4 __attribute__((vector_size(16)));

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#ifdef __has_builtin
#if __has_builtin(__builtin_elementwise_fma)
#define UOPC_ANY_FMA
#endif
#endif
#endif

static inline __attribute__((always_inline)) f32x4 uopc_fma_f32x4(f32x4 a, f32x4 b, f32x4 c) {
#if defined(UOPC_ANY_FMA)
  return __builtin_elementwise_fma(a, b, c);
#elif defined(__FMA__) && 4 == 4
  return __builtin_ia32_vfmaddps(a, b, c);
#elif defined(__FMA__) && 4 == 8
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__AVX512F__) && 4 == 16
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#elif defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  f32x4 r = {0};
  for (int i = 0; i < 4; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return r;
#else
  typedef double wide __attribute__((vector_size(8*4)));
  wide sum = __builtin_convertvector(a, wide)*__builtin_convertvector(b, wide)
    + __builtin_convertvector(c, wide);
  return __builtin_convertvector(sum, f32x4);
#endif
}

static inline __attribute__((always_inline)) f32x4 uopc_splat_f32x4(double c) {
  f32x4 zero = {0};
  return (__typeof__(zero[0]))c - zero;
}

static inline __attribute__((always_inline)) f32x4 uopc_select_f32x4(i32x4 mask, f32x4 a, f32x4 b) {
  return (f32x4)((mask & (i32x4)a) | (~mask & (i32x4)b));
}

static inline __attribute__((always_inline)) f32x4 uopc_vmin_f32x4(f32x4 a, f32x4 b) {
#if defined(__AVX512F__) && !defined(__clang__) && 4*4 == 64
  return __builtin_ia32_minps512_mask(a, b, a, -1, 4);
#elif defined(__AVX__) && !defined(__clang__) && 4*4 == 32
  return __builtin_ia32_minps256(a, b);
#elif defined(__SSE2__) && !defined(__clang__) && 4*4 == 16
  return __builtin_ia32_minps(a, b);
#else
  return uopc_select_f32x4((i32x4)(a < b), a, b);
#endif
}

static inline __attribute__((always_inline)) f32x4 uopc_step_f32x4(f32x4 p, f32x4 x, double c) {
  return uopc_fma_f32x4(p, x, uopc_splat_f32x4(c));
}

static inline __attribute__((always_inline)) f32x4 uopc_scale_f32x4(f32x4 p, f32x4 shifted) {
  u32x4 both = (u32x4)shifted, half = both >> 1;
  return p * (f32x4)(half << 23) * (f32x4)((both - half) << 23);
}

static inline __attribute__((always_inline)) f32x4 uopc_exp_f32x4(f32x4 x) {
  i32x4 some = ~(i32x4)(x < uopc_splat_f32x4(-104.0f));
  x = (f32x4)((i32x4)uopc_vmin_f32x4(uopc_splat_f32x4(89.0f), x) & some);
  f32x4 shifted = uopc_step_f32x4(x, uopc_splat_f32x4(0x1.715476p+0f), 12583166.0f), n = shifted-12583166.0f;
  f32x4 r = uopc_fma_f32x4(n, uopc_splat_f32x4(-0x1.62e4p-1f), x);
  r = uopc_fma_f32x4(n, uopc_splat_f32x4(-0x1.7f7d1cp-20f), r);
  f32x4 p = uopc_splat_f32x4(0x1.696e4ep-10f);
  p = uopc_step_f32x4(p, r, 0x1.123f7cp-7f);
  p = uopc_step_f32x4(p, r, 0x1.555a12p-5f);
  p = uopc_step_f32x4(p, r, 0x1.55548ap-3f);
  p = uopc_step_f32x4(p, r, 0x1.fffffap-2f);
  p = uopc_step_f32x4(p, r, 1.0f);
  return (f32x4)((i32x4)uopc_scale_f32x4(uopc_step_f32x4(p, r, 1.0f), shifted) & some);
}

static inline float uopc_exp_f32(float x) {
  f32x4 v = {x, x, x, x};
  return uopc_exp_f32x4(v)[0];
}

// keep(8 lanes, 32768 bytes), rows(as it is | as it is | as it is | as it is), simplify
void r_3_x3(float* restrict data0, float* restrict data3) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    float acc0 = -__builtin_inff();
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 4; ridx1++) {
      float val1 = acc0;
      float val2 = data0[((ridx0*4)+ridx1)];
      acc0 = uopc_max_f32(val1,val2);
    }
    float acc2[4];
    for (int ridx4 = 0; ridx4 < 4; ridx4++) {
      float val3 = data0[((ridx0*4)+ridx4)];
      float val4 = acc0;
      acc2[ridx4] = uopc_exp_f32((val3+(val4*-1.0f)));
    }
    float acc1 = 0.0f;
    for (int ridx2 = 0; ridx2 < 4; ridx2++) {
      float val5 = acc1;
      float val6 = acc2[ridx2];
      acc1 = (val5+val6);
    }
    for (int ridx3 = 0; ridx3 < 4; ridx3++) {
      float val7 = acc2[ridx3];
      float val8 = acc1;
      data3[((ridx0*4)+ridx3)] = (val7/val8);
    }
  }
}

void uopc_run(void** table) {
  r_3_x3(table[0], table[3]);
}
