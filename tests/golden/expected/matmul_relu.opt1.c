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

// outputs(ridx1, 32), vectorize(ridx3, 8), unroll(ridx3), unroll(ridx2), simplify
void r_12_64(float* restrict data0, float* restrict data1, float* restrict data2, float* restrict data3) {
  for (int ridx0 = 0; ridx0 < 12; ridx0++) {
    for (int ridx1 = 0; ridx1 < 2; ridx1++) {
      f32x8 acc1_0, acc1_1, acc1_2, acc1_3;
      acc1_0 = uopc_all_f32x8(0.0f);
      acc1_1 = uopc_all_f32x8(0.0f);
      acc1_2 = uopc_all_f32x8(0.0f);
      acc1_3 = uopc_all_f32x8(0.0f);
      int alu1 = (ridx0*7);
      float val2 = data0[alu1];
      int alu3 = (ridx1*32);
      f32x8 val4 = *(f32x8_mem*)(data1+alu3);
      acc1_0 = (acc1_0+(uopc_all_f32x8(val2)*val4));
      f32x8 val5 = *(f32x8_mem*)(data1+alu3+8);
      acc1_1 = (acc1_1+(uopc_all_f32x8(val2)*val5));
      f32x8 val6 = *(f32x8_mem*)(data1+alu3+16);
      acc1_2 = (acc1_2+(uopc_all_f32x8(val2)*val6));
      f32x8 val7 = *(f32x8_mem*)(data1+alu3+24);
      acc1_3 = (acc1_3+(uopc_all_f32x8(val2)*val7));
      float val8 = data0[(alu1+1)];
      f32x8 val9 = *(f32x8_mem*)(data1+alu3+64);
      acc1_0 = (acc1_0+(uopc_all_f32x8(val8)*val9));
      f32x8 val10 = *(f32x8_mem*)(data1+alu3+72);
      acc1_1 = (acc1_1+(uopc_all_f32x8(val8)*val10));
      f32x8 val11 = *(f32x8_mem*)(data1+alu3+80);
      acc1_2 = (acc1_2+(uopc_all_f32x8(val8)*val11));
      f32x8 val12 = *(f32x8_mem*)(data1+alu3+88);
      acc1_3 = (acc1_3+(uopc_all_f32x8(val8)*val12));
      float val13 = data0[(alu1+2)];
      f32x8 val14 = *(f32x8_mem*)(data1+alu3+128);
      acc1_0 = (acc1_0+(uopc_all_f32x8(val13)*val14));
      f32x8 val15 = *(f32x8_mem*)(data1+alu3+136);
      acc1_1 = (acc1_1+(uopc_all_f32x8(val13)*val15));
      f32x8 val16 = *(f32x8_mem*)(data1+alu3+144);
      acc1_2 = (acc1_2+(uopc_all_f32x8(val13)*val16));
      f32x8 val17 = *(f32x8_mem*)(data1+alu3+152);
      acc1_3 = (acc1_3+(uopc_all_f32x8(val13)*val17));
      float val18 = data0[(alu1+3)];
      f32x8 val19 = *(f32x8_mem*)(data1+alu3+192);
      acc1_0 = (acc1_0+(uopc_all_f32x8(val18)*val19));
      f32x8 val20 = *(f32x8_mem*)(data1+alu3+200);
      acc1_1 = (acc1_1+(uopc_all_f32x8(val18)*val20));
      f32x8 val21 = *(f32x8_mem*)(data1+alu3+208);
      acc1_2 = (acc1_2+(uopc_all_f32x8(val18)*val21));
      f32x8 val22 = *(f32x8_mem*)(data1+alu3+216);
      acc1_3 = (acc1_3+(uopc_all_f32x8(val18)*val22));
      float val23 = data0[(alu1+4)];
      f32x8 val24 = *(f32x8_mem*)(data1+alu3+256);
      acc1_0 = (acc1_0+(uopc_all_f32x8(val23)*val24));
      f32x8 val25 = *(f32x8_mem*)(data1+alu3+264);
      acc1_1 = (acc1_1+(uopc_all_f32x8(val23)*val25));
      f32x8 val26 = *(f32x8_mem*)(data1+alu3+272);
      acc1_2 = (acc1_2+(uopc_all_f32x8(val23)*val26));
      f32x8 val27 = *(f32x8_mem*)(data1+alu3+280);
      acc1_3 = (acc1_3+(uopc_all_f32x8(val23)*val27));
      float val28 = data0[(alu1+5)];
      f32x8 val29 = *(f32x8_mem*)(data1+alu3+320);
      acc1_0 = (acc1_0+(uopc_all_f32x8(val28)*val29));
      f32x8 val30 = *(f32x8_mem*)(data1+alu3+328);
      acc1_1 = (acc1_1+(uopc_all_f32x8(val28)*val30));
      f32x8 val31 = *(f32x8_mem*)(data1+alu3+336);
      acc1_2 = (acc1_2+(uopc_all_f32x8(val28)*val31));
      f32x8 val32 = *(f32x8_mem*)(data1+alu3+344);
      acc1_3 = (acc1_3+(uopc_all_f32x8(val28)*val32));
      float val33 = data0[(alu1+6)];
      f32x8 val34 = *(f32x8_mem*)(data1+alu3+384);
      acc1_0 = (acc1_0+(uopc_all_f32x8(val33)*val34));
      f32x8 val35 = *(f32x8_mem*)(data1+alu3+392);
      acc1_1 = (acc1_1+(uopc_all_f32x8(val33)*val35));
      f32x8 val36 = *(f32x8_mem*)(data1+alu3+400);
      acc1_2 = (acc1_2+(uopc_all_f32x8(val33)*val36));
      f32x8 val37 = *(f32x8_mem*)(data1+alu3+408);
      acc1_3 = (acc1_3+(uopc_all_f32x8(val33)*val37));
      f32x8 val38 = *(f32x8_mem*)(data2+alu3);
      f32x8 alu39 = (acc1_0+val38);
      *(f32x8_mem*)(data3+(ridx0*64)+alu3) = uopc_where_f32x8(((i32x8)(uopc_all_f32x8(0.0f)<alu39)),alu39,uopc_all_f32x8(0.0f));
      f32x8 val40 = *(f32x8_mem*)(data2+alu3+8);
      f32x8 alu41 = (acc1_1+val40);
      *(f32x8_mem*)(data3+(ridx0*64)+alu3+8) = uopc_where_f32x8(((i32x8)(uopc_all_f32x8(0.0f)<alu41)),alu41,uopc_all_f32x8(0.0f));
      f32x8 val42 = *(f32x8_mem*)(data2+alu3+16);
      f32x8 alu43 = (acc1_2+val42);
      *(f32x8_mem*)(data3+(ridx0*64)+alu3+16) = uopc_where_f32x8(((i32x8)(uopc_all_f32x8(0.0f)<alu43)),alu43,uopc_all_f32x8(0.0f));
      f32x8 val44 = *(f32x8_mem*)(data2+alu3+24);
      f32x8 alu45 = (acc1_3+val44);
      *(f32x8_mem*)(data3+(ridx0*64)+alu3+24) = uopc_where_f32x8(((i32x8)(uopc_all_f32x8(0.0f)<alu45)),alu45,uopc_all_f32x8(0.0f));
    }
  }
}

void uopc_run(void** table) {
  r_12_64(table[0], table[1], table[2], table[3]);
}
