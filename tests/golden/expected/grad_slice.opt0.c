void e_5(float* restrict data0) {
  for (int ridx0 = 0; ridx0 < 5; ridx0++) {
    data0[ridx0] = (((0<ridx0)&(ridx0<3))?1.0f:0.0f);
  }
}

void uopc_run(void** table) {
  e_5(table[0]);
}
