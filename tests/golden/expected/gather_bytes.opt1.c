static inline int uopc_floormod_i32(int a, int b) {
  if (b == 0 || b == (int)-1) return 0;
  int r = (int)(a%b);
  return (int)(r != 0 && (r^b) < 0 ? r+b : r);
}

void e_4_8(unsigned char* restrict data0, int* restrict data1, unsigned char* restrict data2) {
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 8; ridx1++) {
      int val1 = data1[ridx0];
      unsigned char val2 = data0[((uopc_floormod_i32(val1,3)*8)+ridx1)];
      data2[((ridx0*8)+ridx1)] = ((unsigned char)(((unsigned char)(((unsigned char)(val2*2))/3))^val2));
    }
  }
}

void r_2(float* restrict data0, float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 2; ridx0++) {
    float acc0 = 0.0f;
    #pragma GCC unroll 1
    for (int ridx1 = 0; ridx1 < 3; ridx1++) {
      #pragma GCC unroll 1
      for (int ridx2 = 0; ridx2 < 4; ridx2++) {
        float val1 = acc0;
        float val2 = data0[(((ridx0*12)+(ridx1*4))+ridx2)];
        acc0 = (val1+val2);
      }
    }
    float val3 = acc0;
    data1[ridx0] = val3;
  }
}

void uopc_run(void** table) {
  e_4_8(table[0], table[1], table[3]);
  r_2(table[2], table[4]);
}
