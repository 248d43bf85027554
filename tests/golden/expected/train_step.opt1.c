#pragma GCC diagnostic ignored "-Wpsabi"

typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8_mem __attribute__((vector_size(32), aligned(4), may_alias));

static inline __attribute__((always_inline)) f32x8 uopc_all_f32x8(float x) {
  return (f32x8){x, x, x, x, x, x, x, x};
}

typedef int i32x8 __attribute__((vector_size(32)));
typedef int i32x8_mem __attribute__((vector_size(32), aligned(4), may_alias));

typedef unsigned u32x8 __attribute__((vector_size(32)));
typedef unsigned u32x8_mem __attribute__((vector_size(32), aligned(4), may_alias));

static inline __attribute__((always_inline)) f32x8 uopc_where_f32x8(i32x8 c, f32x8 a, f32x8 b) {
  return (f32x8)(((i32x8)a & c) | ((i32x8)b & ~c));
}

typedef float f32x2 __attribute__((vector_size(8)));
typedef float f32x2_mem __attribute__((vector_size(8), aligned(4), may_alias));

static inline __attribute__((always_inline)) f32x2 uopc_all_f32x2(float x) {
  return (f32x2){x, x};
}

typedef int i32x2 __attribute__((vector_size(8)));
typedef int i32x2_mem __attribute__((vector_size(8), aligned(4), may_alias));

typedef unsigned u32x2 __attribute__((vector_size(8)));
typedef unsigned u32x2_mem __attribute__((vector_size(8), aligned(4), may_alias));

void r_8_3(float* restrict data0, float* restrict data1, float* restrict data2) {
  for (int ridx0 = 0; ridx0 < 8; ridx0++) {
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 3; ridx1++) {
      float acc0 = 0.0f;
      #pragma GCC unroll 1
      for (int ridx2 = 0; ridx2 < 10; ridx2++) {
        float val1 = acc0;
        float val2 = data0[((ridx0*10)+ridx2)];
        float val3 = data1[((ridx2*3)+ridx1)];
        acc0 = (val1+(val2*val3));
      }
      float val4 = acc0;
      data2[((ridx0*3)+ridx1)] = val4;
    }
  }
}

// merge(ridx0, ridx1), lanes(ridx0, 2x8), simplify
void r(float* restrict data0, float* restrict data1) {
  float acc0 = 0.0f;
  f32x8 acc1_0, acc1_1;
  acc1_0 = uopc_all_f32x8(0.0f);
  acc1_1 = uopc_all_f32x8(0.0f);
  for (int ridx0 = 0; ridx0 < 1; ridx0++) {
    f32x8 val1 = *(f32x8_mem*)data0;
    f32x8 alu2 = uopc_where_f32x8(((i32x8)(uopc_all_f32x8(0.0f)<val1)),val1,uopc_all_f32x8(0.0f));
    acc1_0 = (acc1_0+(alu2*alu2));
    f32x8 val3 = *(f32x8_mem*)(data0+8);
    f32x8 alu4 = uopc_where_f32x8(((i32x8)(uopc_all_f32x8(0.0f)<val3)),val3,uopc_all_f32x8(0.0f));
    acc1_1 = (acc1_1+(alu4*alu4));
  }
  for (int ridx0 = 0; ridx0 < 1; ridx0++) {
    f32x8 val5 = *(f32x8_mem*)(data0+16);
    f32x8 alu6 = uopc_where_f32x8(((i32x8)(uopc_all_f32x8(0.0f)<val5)),val5,uopc_all_f32x8(0.0f));
    acc1_0 = (acc1_0+(alu6*alu6));
  }
  f32x8 acc2_0;
  acc2_0 = (acc1_0+acc1_1);
  float val7 = acc0;
  float val8 = acc2_0[0];
  float val9 = acc2_0[1];
  float val10 = acc2_0[2];
  float val11 = acc2_0[3];
  float val12 = acc2_0[4];
  float val13 = acc2_0[5];
  float val14 = acc2_0[6];
  float val15 = acc2_0[7];
  acc0 = (val7+(((val8+val9)+(val10+val11))+((val12+val13)+(val14+val15))));
  float val16 = acc0;
  data1[0] = (val16*0.041666668f);
}

// outputs(ridx1, 10), vectorize(ridx3, 8), unroll(ridx3), unroll(ridx2), simplify
void r_3_10(float* restrict data0, float* restrict data1, float* restrict data2) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    f32x8 acc1_0;
    f32x2 acc1_1;
    acc1_0 = uopc_all_f32x8(0.0f);
    acc1_1 = uopc_all_f32x2(0.0f);
    float val1 = data0[ridx0];
    _Bool alu2 = (0.0f<val1);
    float alu3 = ((alu2?val1:0.0f)*0.041666668f);
    float alu4 = (alu2?(alu3+alu3):0.0f);
    f32x8 val5 = *(f32x8_mem*)data1;
    acc1_0 = (acc1_0+(uopc_all_f32x8(alu4)*val5));
    f32x2 val6 = *(f32x2_mem*)(data1+8);
    acc1_1 = (acc1_1+(uopc_all_f32x2(alu4)*val6));
    float val7 = data0[(ridx0+3)];
    _Bool alu8 = (0.0f<val7);
    float alu9 = ((alu8?val7:0.0f)*0.041666668f);
    float alu10 = (alu8?(alu9+alu9):0.0f);
    f32x8 val11 = *(f32x8_mem*)(data1+10);
    acc1_0 = (acc1_0+(uopc_all_f32x8(alu10)*val11));
    f32x2 val12 = *(f32x2_mem*)(data1+18);
    acc1_1 = (acc1_1+(uopc_all_f32x2(alu10)*val12));
    float val13 = data0[(ridx0+6)];
    _Bool alu14 = (0.0f<val13);
    float alu15 = ((alu14?val13:0.0f)*0.041666668f);
    float alu16 = (alu14?(alu15+alu15):0.0f);
    f32x8 val17 = *(f32x8_mem*)(data1+20);
    acc1_0 = (acc1_0+(uopc_all_f32x8(alu16)*val17));
    f32x2 val18 = *(f32x2_mem*)(data1+28);
    acc1_1 = (acc1_1+(uopc_all_f32x2(alu16)*val18));
    float val19 = data0[(ridx0+9)];
    _Bool alu20 = (0.0f<val19);
    float alu21 = ((alu20?val19:0.0f)*0.041666668f);
    float alu22 = (alu20?(alu21+alu21):0.0f);
    f32x8 val23 = *(f32x8_mem*)(data1+30);
    acc1_0 = (acc1_0+(uopc_all_f32x8(alu22)*val23));
    f32x2 val24 = *(f32x2_mem*)(data1+38);
    acc1_1 = (acc1_1+(uopc_all_f32x2(alu22)*val24));
    float val25 = data0[(ridx0+12)];
    _Bool alu26 = (0.0f<val25);
    float alu27 = ((alu26?val25:0.0f)*0.041666668f);
    float alu28 = (alu26?(alu27+alu27):0.0f);
    f32x8 val29 = *(f32x8_mem*)(data1+40);
    acc1_0 = (acc1_0+(uopc_all_f32x8(alu28)*val29));
    f32x2 val30 = *(f32x2_mem*)(data1+48);
    acc1_1 = (acc1_1+(uopc_all_f32x2(alu28)*val30));
    float val31 = data0[(ridx0+15)];
    _Bool alu32 = (0.0f<val31);
    float alu33 = ((alu32?val31:0.0f)*0.041666668f);
    float alu34 = (alu32?(alu33+alu33):0.0f);
    f32x8 val35 = *(f32x8_mem*)(data1+50);
    acc1_0 = (acc1_0+(uopc_all_f32x8(alu34)*val35));
    f32x2 val36 = *(f32x2_mem*)(data1+58);
    acc1_1 = (acc1_1+(uopc_all_f32x2(alu34)*val36));
    float val37 = data0[(ridx0+18)];
    _Bool alu38 = (0.0f<val37);
    float alu39 = ((alu38?val37:0.0f)*0.041666668f);
    float alu40 = (alu38?(alu39+alu39):0.0f);
    f32x8 val41 = *(f32x8_mem*)(data1+60);
    acc1_0 = (acc1_0+(uopc_all_f32x8(alu40)*val41));
    f32x2 val42 = *(f32x2_mem*)(data1+68);
    acc1_1 = (acc1_1+(uopc_all_f32x2(alu40)*val42));
    float val43 = data0[(ridx0+21)];
    _Bool alu44 = (0.0f<val43);
    float alu45 = ((alu44?val43:0.0f)*0.041666668f);
    float alu46 = (alu44?(alu45+alu45):0.0f);
    f32x8 val47 = *(f32x8_mem*)(data1+70);
    acc1_0 = (acc1_0+(uopc_all_f32x8(alu46)*val47));
    f32x2 val48 = *(f32x2_mem*)(data1+78);
    acc1_1 = (acc1_1+(uopc_all_f32x2(alu46)*val48));
    int alu49 = (ridx0*10);
    *(f32x8_mem*)(data2+alu49) = acc1_0;
    *(f32x2_mem*)(data2+alu49+8) = acc1_1;
  }
}

void e_10_3(float* restrict data0, float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 10; ridx0++) {
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 3; ridx1++) {
      float val1 = data0[((ridx1*10)+ridx0)];
      data1[((ridx0*3)+ridx1)] = val1;
    }
  }
}

void uopc_run(void** table) {
  r_8_3(table[0], table[1], table[2]);
  r(table[2], table[3]);
  r_3_10(table[2], table[0], table[4]);
  e_10_3(table[4], table[5]);
}
