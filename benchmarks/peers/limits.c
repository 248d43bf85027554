/* What a processor can do at best: multiply-adds in registers, and moving memory.
   Compiled with contraction, so that a * b + c is one instruction where there is one. */

#define LANES(bytes) ((long)(bytes) / (long)sizeof(float))

/* Twelve independent sums hide the latency of two units, and fit into 16 registers. */
#define PEAK(bytes)                                                                   \
  typedef float floats_##bytes __attribute__((vector_size(bytes)));                   \
  float peak_##bytes(long rounds, float seed) {                                       \
    floats_##bytes x = {0}, y = {0}, a[12];                                           \
    x += seed, y += 1.0f - seed;                                                      \
    for (int i = 0; i < 12; i++) a[i] = x * (float)i;                                 \
    for (long n = 0; n < rounds; n++)                                                 \
      for (int i = 0; i < 12; i++) a[i] = a[i] * x + y;                               \
    for (int i = 1; i < 12; i++) a[0] += a[i];                                        \
    return a[0][0] + a[0][LANES(bytes) - 1];                                          \
  }
PEAK(16)
PEAK(32)
PEAK(64)

#if defined(__AVX512F__)
#define WIDE 64
#elif defined(__AVX__)
#define WIDE 32
#else
#define WIDE 16
#endif
typedef long long words __attribute__((vector_size(WIDE)));

long long read_memory(const void* from, void* to, long bytes) {
  const words* p = from;
  words a = {0}, b = {0}, c = {0}, d = {0};
  for (long i = 0; i + 4 <= bytes / WIDE; i += 4)
    a += p[i], b += p[i + 1], c += p[i + 2], d += p[i + 3];
  a += b + c + d;
  return a[0] + a[1];
}

/* The empty assembly keeps the compiler from calling memcpy instead. */
long long copy_memory(const void* from, void* to, long bytes) {
  const words* p = from;
  words* q = to;
  for (long i = 0; i < bytes / WIDE; i++) {
    q[i] = p[i];
    __asm__ volatile("" ::: "memory");
  }
  return 0;
}

/* As copy_memory, with stores that bypass the caches where there are any. */
long long stream_memory(const void* from, void* to, long bytes) {
#if defined(__x86_64__)
  typedef double part __attribute__((vector_size(WIDE)));
  const part* p = from;
  part* q = to;
  for (long i = 0; i < bytes / WIDE; i++) {
#if defined(__clang__)
    __builtin_nontemporal_store(p[i], q + i);
#elif WIDE == 64
    __builtin_ia32_movntpd512((double*)(q + i), p[i]);
#elif WIDE == 32
    __builtin_ia32_movntpd256((double*)(q + i), p[i]);
#else
    __builtin_ia32_movntpd((double*)(q + i), p[i]);
#endif
  }
  __builtin_ia32_sfence();
  return 0;
#else
  return copy_memory(from, to, bytes);
#endif
}
