void e_3(float* restrict data0, float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    float val1 = data0[ridx0];
    data1[ridx0] = (val1+1.0f);
  }
}

void e_3_n2(float* restrict data0, float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    float val1 = data0[ridx0];
    data1[ridx0] = val1;
  }
}

void uopc_run(void** table) {
  e_3(table[0], table[2]);
  e_3_n2(table[1], table[3]);
}
