/* Jobs of several threads on one pool, with its size changing and processes forking,
   for the thread sanitizer to watch. Prints "done" if every round ran once. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void uopc_pool_run(void (*task)(void **, long), void **table, long rounds);
void uopc_pool_set_threads(int size);

enum { CALLERS = 3, JOBS = 3000, MOST_ROUNDS = 40 };

/* Plain memory: a race shows. */
static void count(void **table, long i) { ((long *)table[0])[i]++; }

static void row(void **table, long i) {
  void *inner[] = {(long *)table[0] + 8 * i};
  uopc_pool_run(count, inner, 8);
}

static void check(const long *counts, long n) {
  for (long i = 0; i < n; i++)
    if (counts[i] != 1) printf("round %ld ran %ld times\n", i, counts[i]), exit(1);
}

static void run_jobs(int jobs, long seed) {
  for (int k = 0; k < jobs; k++) {
    long n = (k + seed) % MOST_ROUNDS;
    long counts[8 * MOST_ROUNDS] = {0};
    void *table[] = {counts};
    int nested = k % 16 == 0;
    uopc_pool_run(nested ? row : count, table, n);
    check(counts, nested ? 8 * n : n);
  }
}

static void *call(void *seed) {
  run_jobs(JOBS, (long)seed);
  return NULL;
}

int main(void) {
  pthread_t callers[CALLERS];
  uopc_pool_set_threads(3);
  for (long c = 0; c < CALLERS; c++) pthread_create(&callers[c], NULL, call, (void *)c);
  for (int k = 0; k < 100; k++) {
    uopc_pool_set_threads(1 + k % 4);
    usleep(500); /* workers fall asleep now and then */
  }
  for (int c = 0; c < CALLERS; c++) pthread_join(callers[c], NULL);
  for (int k = 0; k < 5; k++) {
    pid_t child = fork();
    int status;
    if (!child) {
      run_jobs(100, k);
      _exit(0);
    }
    waitpid(child, &status, 0);
    if (status) printf("a child failed: %d\n", status), exit(1);
    run_jobs(100, k);
  }
  puts("done");
  return 0;
}
