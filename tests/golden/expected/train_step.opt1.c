void r_8_3(float* restrict data0, float* restrict data1, float* restrict data2) {
  for (int ridx0 = 0; ridx0 < 8; ridx0++) {
    float acc0[3];
    for (int ridx2 = 0; ridx2 < 3; ridx2++) {
      acc0[ridx2] = 0.0f;
    }
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 10; ridx1++) {
      for (int ridx2 = 0; ridx2 < 3; ridx2++) {
        float val1 = acc0[ridx2];
        float val2 = data0[((ridx0*10)+ridx1)];
        float val3 = data1[((ridx1*3)+ridx2)];
        acc0[ridx2] = (val1+(val2*val3));
      }
    }
    for (int ridx2 = 0; ridx2 < 3; ridx2++) {
      float val4 = acc0[ridx2];
      data2[((ridx0*3)+ridx2)] = val4;
    }
  }
}

void r(float* restrict data0, float* restrict data1) {
  float acc0 = 0.0f;
  for (int ridx0 = 0; ridx0 < 8; ridx0++) {
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 3; ridx1++) {
      float val1 = acc0;
      float val2 = data0[((ridx0*3)+ridx1)];
      float alu3 = ((0.0f<val2)?val2:0.0f);
      acc0 = (val1+(alu3*alu3));
    }
  }
  float val4 = acc0;
  data1[0] = (val4*0.041666668f);
}

void r_3_10(float* restrict data0, float* restrict data1, float* restrict data2) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    float acc0[10];
    for (int ridx2 = 0; ridx2 < 10; ridx2++) {
      acc0[ridx2] = 0.0f;
    }
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 8; ridx1++) {
      for (int ridx2 = 0; ridx2 < 10; ridx2++) {
        float val1 = acc0[ridx2];
        float val2 = data0[((ridx1*3)+ridx0)];
        _Bool alu3 = (0.0f<val2);
        float alu4 = ((alu3?val2:0.0f)*0.041666668f);
        float val5 = data1[((ridx1*10)+ridx2)];
        acc0[ridx2] = (val1+((alu3?(alu4+alu4):0.0f)*val5));
      }
    }
    for (int ridx2 = 0; ridx2 < 10; ridx2++) {
      float val6 = acc0[ridx2];
      data2[((ridx0*10)+ridx2)] = val6;
    }
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
