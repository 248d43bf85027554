static inline float uopc_max_f32(float a, float b) {
  return a > b || a != a ? a : b;
}

void r_3(float* restrict data0, float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    float acc0 = -__builtin_inff();
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 4; ridx1++) {
      float val1 = acc0;
      float val2 = data0[((ridx0*4)+ridx1)];
      acc0 = uopc_max_f32(val1,val2);
    }
    float val3 = acc0;
    data1[ridx0] = val3;
  }
}

void r_3_n2(float* restrict data0, float* restrict data1, float* restrict data2) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    float acc0 = 0.0f;
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 4; ridx1++) {
      float val1 = acc0;
      float val2 = data0[((ridx0*4)+ridx1)];
      float val3 = data1[ridx0];
      acc0 = (val1+__builtin_expf((val2+(val3*-1.0f))));
    }
    float val4 = acc0;
    data2[ridx0] = val4;
  }
}

void e_3_4(float* restrict data0, float* restrict data1, float* restrict data2, float* restrict data3) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 4; ridx1++) {
      int alu1 = ((ridx0*4)+ridx1);
      float val2 = data0[alu1];
      float val3 = data1[ridx0];
      float val4 = data2[ridx0];
      data3[alu1] = (__builtin_expf((val2+(val3*-1.0f)))/val4);
    }
  }
}

void uopc_run(void** table) {
  r_3(table[0], table[1]);
  r_3_n2(table[0], table[1], table[2]);
  e_3_4(table[0], table[1], table[2], table[3]);
}
