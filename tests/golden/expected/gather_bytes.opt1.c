static inline int uopc_floormod_i32(int a, int b) {
  if (b == 0 || b == (int)-1) return 0;
  int r = (int)(a%b);
  return (int)(r != 0 && (r^b) < 0 ? r+b : r);
}

#pragma GCC diagnostic ignored "-Wpsabi"

typedef unsigned char u8x8 __attribute__((vector_size(8)));
typedef unsigned char u8x8_mem __attribute__((vector_size(8), aligned(1), may_alias));

static inline __attribute__((always_inline)) u8x8 uopc_all_u8x8(unsigned char x) {
  return (u8x8){x, x, x, x, x, x, x, x};
}

typedef signed char i8x8 __attribute__((vector_size(8)));
typedef signed char i8x8_mem __attribute__((vector_size(8), aligned(1), may_alias));

// vectorize(ridx1, 8), simplify
void e_4_8(unsigned char* restrict data0, int* restrict data1, unsigned char* restrict data2) {
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    int val1 = data1[ridx0];
    u8x8 val2 = *(u8x8_mem*)(data0+(uopc_floormod_i32(val1,3)*8));
    *(u8x8_mem*)(data2+(ridx0*8)) = (((val2*uopc_all_u8x8(2))/3)^val2);
  }
}

// merge(ridx1, ridx2), simplify
void r_2(float* restrict data0, float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 2; ridx0++) {
    float acc0 = 0.0f;
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 12; ridx1++) {
      float val1 = acc0;
      float val2 = data0[((ridx0*12)+ridx1)];
      acc0 = (val1+val2);
    }
    float val3 = acc0;
    data1[ridx0] = val3;
  }
}

void uopc_run(void** table) {
  e_4_8(table[0], table[1], table[3]);
  r_2(table[2], table[4]);
}
