void e_4_3(float* restrict data0, int* restrict data1, float* restrict data2) {
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    for (int ridx1 = 0; ridx1 < 3; ridx1++) {
      int val1 = data1[ridx0];
      _Bool alu2 = ((-1<val1)&(val1<5));
      float val3 = data0[(((alu2?val1:0)*3)+ridx1)];
      data2[((ridx0*3)+ridx1)] = (alu2?val3:0.0f);
    }
  }
}

void s_5_3(float* restrict data0, int* restrict data1, float* restrict data2) {
  for (int ridx0 = 0; ridx0 < 15; ridx0++) {
    data2[ridx0] = 0.0f;
  }
  for (int ridx1 = 0; ridx1 < 4; ridx1++) {
    for (int ridx2 = 0; ridx2 < 3; ridx2++) {
      int val1 = data1[ridx1];
      _Bool alu2 = ((-1<val1)&(val1<5));
      int alu3 = (((alu2?val1:0)*3)+ridx2);
      float val4 = data2[alu3];
      float val5 = data0[((ridx1*3)+ridx2)];
      data2[alu3] = (val4+(alu2?(val5+val5):0.0f));
    }
  }
}

void uopc_run(void** table) {
  e_4_3(table[0], table[1], table[2]);
  s_5_3(table[2], table[1], table[3]);
}
