void r_12_64(float* restrict data0, float* restrict data1, float* restrict data2, float* restrict data3) {
  for (int ridx0 = 0; ridx0 < 12; ridx0++) {
    float acc0[64];
    for (int ridx2 = 0; ridx2 < 64; ridx2++) {
      acc0[ridx2] = 0.0f;
    }
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 7; ridx1++) {
      for (int ridx2 = 0; ridx2 < 64; ridx2++) {
        float val1 = acc0[ridx2];
        float val2 = data0[((ridx0*7)+ridx1)];
        float val3 = data1[((ridx1*64)+ridx2)];
        acc0[ridx2] = (val1+(val2*val3));
      }
    }
    for (int ridx2 = 0; ridx2 < 64; ridx2++) {
      float val4 = acc0[ridx2];
      float val5 = data2[ridx2];
      float alu6 = (val4+val5);
      data3[((ridx0*64)+ridx2)] = ((0.0f<alu6)?alu6:0.0f);
    }
  }
}

void uopc_run(void** table) {
  r_12_64(table[0], table[1], table[2], table[3]);
}
