#pragma GCC diagnostic ignored "-Wpsabi"

typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8_mem __attribute__((vector_size(32), aligned(4), may_alias));

static inline __attribute__((always_inline)) f32x8 uopc_all_f32x8(float x) {
  return (f32x8){x, x, x, x, x, x, x, x};
}

static inline __attribute__((always_inline)) f32x8 uopc_held_f32x8(f32x8 x) {
#if defined(__x86_64__)
  __asm__("" : "+v"(x));
#endif
  return x;
}

typedef int i32x8 __attribute__((vector_size(32)));
typedef int i32x8_mem __attribute__((vector_size(32), aligned(4), may_alias));

typedef unsigned u32x8 __attribute__((vector_size(32)));
typedef unsigned u32x8_mem __attribute__((vector_size(32), aligned(4), may_alias));

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#ifdef __has_builtin
#if __has_builtin(__builtin_elementwise_fma)
#define UOPC_ANY_FMA
#endif
#endif
#endif

static inline __attribute__((always_inline)) f32x8 uopc_fma_f32x8(f32x8 a, f32x8 b, f32x8 c) {
#if defined(UOPC_ANY_FMA)
  return __builtin_elementwise_fma(a, b, c);
#elif defined(__FMA__) && 8 == 4
  return __builtin_ia32_vfmaddps(a, b, c);
#elif defined(__FMA__) && 8 == 8
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__AVX512F__) && 8 == 16
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#elif defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  f32x8 r = {0};
  for (int i = 0; i < 8; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return r;
#else
  typedef double wide __attribute__((vector_size(8*8)));
  wide sum = __builtin_convertvector(a, wide)*__builtin_convertvector(b, wide)
    + __builtin_convertvector(c, wide);
  return __builtin_convertvector(sum, f32x8);
#endif
}

static __attribute__((noinline)) void uopc_tile_5f3ef841(const float* restrict data0, const float* restrict data1, float* restrict data2, long long n0, long long n1) {
  for (long long ridx0 = 0; ridx0 < n0; ridx0++) {
    f32x8 acc0_0, acc0_1, acc0_2, acc0_3, acc0_4, acc0_5, acc0_6, acc0_7, acc0_8, acc0_9, acc0_10, acc0_11;
    acc0_0 = uopc_all_f32x8(0.0f);
    acc0_1 = uopc_all_f32x8(0.0f);
    acc0_2 = uopc_all_f32x8(0.0f);
    acc0_3 = uopc_all_f32x8(0.0f);
    acc0_4 = uopc_all_f32x8(0.0f);
    acc0_5 = uopc_all_f32x8(0.0f);
    acc0_6 = uopc_all_f32x8(0.0f);
    acc0_7 = uopc_all_f32x8(0.0f);
    acc0_8 = uopc_all_f32x8(0.0f);
    acc0_9 = uopc_all_f32x8(0.0f);
    acc0_10 = uopc_all_f32x8(0.0f);
    acc0_11 = uopc_all_f32x8(0.0f);
    for (long long ridx2 = 0; ridx2 < n1; ridx2++) {
      float val1 = data0[ridx2];
      f32x8 val2 = uopc_held_f32x8(*(f32x8_mem*)(data1+(ridx2*64LL)));
      acc0_0 = uopc_fma_f32x8(uopc_all_f32x8(val1),val2,acc0_0);
      f32x8 val3 = uopc_held_f32x8(*(f32x8_mem*)(data1+(ridx2*64LL)+8LL));
      acc0_1 = uopc_fma_f32x8(uopc_all_f32x8(val1),val3,acc0_1);
      float val4 = data0[(ridx2+7LL)];
      acc0_2 = uopc_fma_f32x8(uopc_all_f32x8(val4),val2,acc0_2);
      acc0_3 = uopc_fma_f32x8(uopc_all_f32x8(val4),val3,acc0_3);
      float val5 = data0[(ridx2+14LL)];
      acc0_4 = uopc_fma_f32x8(uopc_all_f32x8(val5),val2,acc0_4);
      acc0_5 = uopc_fma_f32x8(uopc_all_f32x8(val5),val3,acc0_5);
      float val6 = data0[(ridx2+21LL)];
      acc0_6 = uopc_fma_f32x8(uopc_all_f32x8(val6),val2,acc0_6);
      acc0_7 = uopc_fma_f32x8(uopc_all_f32x8(val6),val3,acc0_7);
      float val7 = data0[(ridx2+28LL)];
      acc0_8 = uopc_fma_f32x8(uopc_all_f32x8(val7),val2,acc0_8);
      acc0_9 = uopc_fma_f32x8(uopc_all_f32x8(val7),val3,acc0_9);
      float val8 = data0[(ridx2+35LL)];
      acc0_10 = uopc_fma_f32x8(uopc_all_f32x8(val8),val2,acc0_10);
      acc0_11 = uopc_fma_f32x8(uopc_all_f32x8(val8),val3,acc0_11);
    }
    *(f32x8_mem*)data2 = acc0_0;
    *(f32x8_mem*)(data2+8LL) = acc0_1;
    *(f32x8_mem*)(data2+16LL) = acc0_2;
    *(f32x8_mem*)(data2+24LL) = acc0_3;
    *(f32x8_mem*)(data2+32LL) = acc0_4;
    *(f32x8_mem*)(data2+40LL) = acc0_5;
    *(f32x8_mem*)(data2+48LL) = acc0_6;
    *(f32x8_mem*)(data2+56LL) = acc0_7;
    *(f32x8_mem*)(data2+64LL) = acc0_8;
    *(f32x8_mem*)(data2+72LL) = acc0_9;
    *(f32x8_mem*)(data2+80LL) = acc0_10;
    *(f32x8_mem*)(data2+88LL) = acc0_11;
  }
}

static inline __attribute__((always_inline)) f32x8 uopc_where_f32x8(i32x8 c, f32x8 a, f32x8 b) {
  return (f32x8)(((i32x8)a & c) | ((i32x8)b & ~c));
}

// contract(tile 6x16, block 12x64x7, left in place, right in place), simplify
void r_12_64(float* restrict data0, float* restrict data1, float* restrict data2, float* restrict data3) {
  for (int ridx1 = 0; ridx1 < 1; ridx1++) {
    for (int ridx2 = 0; ridx2 < 2; ridx2++) {
      float acc1[384] __attribute__((aligned(64)));
      for (int ridx3 = 0; ridx3 < 4; ridx3++) {
        uopc_tile_5f3ef841(&data0[(ridx2*42)], &data1[(ridx3*16)], &acc1[(ridx3*96)], 1, 7);
      }
      for (int ridx6 = 0; ridx6 < 6; ridx6++) {
        for (int ridx7 = 0; ridx7 < 4; ridx7++) {
          for (int ridx8 = 0; ridx8 < 2; ridx8++) {
            int alu1 = (ridx8*8);
            f32x8 val2 = *(f32x8_mem*)(acc1+(ridx7*96)+(ridx6*16)+alu1);
            int alu3 = (ridx7*16);
            f32x8 val4 = *(f32x8_mem*)(data2+alu3+alu1);
            f32x8 alu5 = (val2+val4);
            *(f32x8_mem*)(data3+(ridx2*384)+(ridx6*64)+alu3+alu1) = uopc_where_f32x8(((i32x8)(uopc_all_f32x8(0.0f)<alu5)),alu5,uopc_all_f32x8(0.0f));
          }
        }
      }
    }
  }
}

void uopc_run(void** table) {
  r_12_64(table[0], table[1], table[2], table[3]);
}
