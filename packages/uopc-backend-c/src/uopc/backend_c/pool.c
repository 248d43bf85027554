/* The threads of uopc: they share the rounds of a loop whose rounds are independent.

   The rounds of a job are claimed one by one from a counter, by the caller and by the
   workers that are awake. The caller waits for the claimed rounds only: a worker that
   sleeps, or that another process keeps from running, delays nobody until it claims.
   Whoever has nothing to do spins for a tenth of a millisecond and then sleeps.

   There is one pool per process and one job at a time. Who comes second, another
   thread or a task of the job itself, runs its rounds alone.

   Where other processes want the processors too, two things need help. A worker on the
   caller's processor would only take from it, so it moves away. And when the caller
   waits for a worker that was stopped in the midst of a round, that one gets the
   caller's processor. */

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

typedef void task_function(void **table, long round);

enum {
  /* 100 are 3 us of a Zen 3, where to wake a worker takes the caller 8 us or so, and
     the worker 20 more. The caller waits less long, because somebody else may need its
     processor to finish. */
  SPINS_OF_WORKERS = 6000,
  SPINS_OF_CALLER = 400,
  PATIENCE = 50000,    /* nanoseconds of waiting for a worker before looking after it */
  FAN = 2,             /* how many others one who is awake wakes */
  STACK = 8 << 20,     /* at least: tasks have arrays on the stack */
  APART = 128,         /* bytes between what different threads write */
  MOST_THREADS = 1024,
};

struct worker {
  _Alignas(APART) atomic_int works; /* whether it may have claimed a round */
  pthread_t thread;
};

/* What the system offers: sleeping until a number changes, which may also end for no
   reason, and processors by number. */
#if defined(__linux__) && defined(SYS_futex) && !defined(UOPC_PORTABLE)
enum { WAIT_PRIVATE = 128, WAKE_PRIVATE = 129 };

typedef struct {
  int cpu;
  cpu_set_t usable;
} place;

/* Whether it lasted as long as it may; 0 nanoseconds stand for no end. */
static int sleep_on(atomic_int *number, int seen, long nanoseconds) {
  struct timespec most = {0, nanoseconds};
  void *limit = nanoseconds ? &most : NULL;
  return syscall(SYS_futex, number, WAIT_PRIVATE, seen, limit, NULL, 0) &&
         errno == ETIMEDOUT;
}

static void wake(atomic_int *number, int count) {
  syscall(SYS_futex, number, WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void forget_sleepers(void) {}

/* Note where this thread runs, and might run. */
static void look_around(place *here) {
  int cpu = sched_getcpu();
  if (cpu == here->cpu) return;
  here->cpu = cpu;
  if (sched_getaffinity(0, sizeof here->usable, &here->usable)) CPU_ZERO(&here->usable);
}

static int at(const place *there) { return sched_getcpu() == there->cpu; }

/* Let this thread run anywhere but there, if there is anywhere else. */
static void move_away(const place *there) {
  cpu_set_t others = there->usable;
  if (there->cpu < 0 || there->cpu >= CPU_SETSIZE) return;
  CPU_CLR(there->cpu, &others);
  if (CPU_COUNT(&others)) sched_setaffinity(0, sizeof others, &others);
}

/* Nanoseconds that a worker has run for. */
static int64_t run_time(const struct worker *w) {
  clockid_t clock;
  struct timespec t = {0, 0};
  if (!pthread_getcpuclockid(w->thread, &clock)) clock_gettime(clock, &t);
  return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* Bring a worker there. */
static void fetch(const struct worker *w, const place *there) {
  cpu_set_t one;
  if (there->cpu < 0 || there->cpu >= CPU_SETSIZE) return;
  CPU_ZERO(&one);
  CPU_SET(there->cpu, &one);
  pthread_setaffinity_np(w->thread, sizeof one, &one);
}
#else
typedef struct {
  int cpu;
} place;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static int sleep_on(atomic_int *number, int seen, long nanoseconds) {
  (void)nanoseconds;
  pthread_mutex_lock(&mutex);
  if (atomic_load(number) == seen) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
  return 0;
}

static void wake(atomic_int *number, int count) {
  (void)number, (void)count;
  pthread_mutex_lock(&mutex);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

static void forget_sleepers(void) {
  mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

static void look_around(place *here) { (void)here; }
static int at(const place *there) { return (void)there, 0; }
static void move_away(const place *there) { (void)there; }
static int64_t run_time(const struct worker *w) { return (void)w, 0; }
static void fetch(const struct worker *w, const place *there) { (void)w, (void)there; }
#endif

/* How many this thread may use. */
static int processors(void) {
#ifdef __linux__
  cpu_set_t usable;
  if (!sched_getaffinity(0, sizeof usable, &usable)) return CPU_COUNT(&usable);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

/* The job. What is not atomic is written while `left` is not positive, and read by who
   has claimed a round: the job cannot end before that one adds to `done`. */
static _Alignas(APART) atomic_long left; /* rounds to be claimed, if positive */
static task_function *task;
static void **table;
static int rounds;
static place caller;
static _Alignas(APART) atomic_int done; /* rounds that are finished */
static atomic_int caller_sleeps;

/* The workers. What is not atomic belongs to who has set `busy`. */
static _Alignas(APART) atomic_int bell; /* another number for each reason to wake up */
static atomic_int sleepers;
static atomic_int team;   /* workers of another team go home */
static atomic_int wanted; /* threads in all; 0: one per processor */
static _Alignas(APART) atomic_int busy;
static int mustered = -1; /* what `wanted` was when the team was made */
static int workers;
static struct worker crew[MOST_THREADS];

/* How many rounds there were when one of them was claimed; not positive: none was.
   A claim made late is of the next job, and as good. */
static long claim(void) {
  if (atomic_load_explicit(&left, memory_order_relaxed) <= 0) return 0;
  return atomic_fetch_sub(&left, 1);
}

/* Run rounds until none is left to be claimed. */
static void work(int is_worker) {
  long k = claim();
  if (k <= 0) return;
  task_function *run = task;
  void **p = table;
  int n = rounds, mine = 0;
  for (; k > 0; k = claim()) {
    run(p, n - k);
    mine++;
  }
  place there = {.cpu = -1};
  if (is_worker && at(&caller)) there = caller;
  /* On x86 this also makes visible what went past the cache. */
  if (atomic_fetch_add(&done, mine) + mine == n && atomic_load(&caller_sleeps))
    wake(&done, 1);
  if (there.cpu >= 0) move_away(&there);
}

/* Wait for the rounds that workers have claimed. */
static void await_rounds(int n) {
  for (int i = 0; i < SPINS_OF_CALLER; i++) {
    if (atomic_load(&done) == n) return;
    pause_briefly();
  }
  atomic_store(&caller_sleeps, 1);
  for (int i = 0, seen; (seen = atomic_load(&done)) != n; i = (i + 1) % workers) {
    for (int k = 0; k < workers && !atomic_load(&crew[i].works); k++)
      i = (i + 1) % workers;
    int64_t before = run_time(&crew[i]);
    if (sleep_on(&done, seen, PATIENCE) && atomic_load(&crew[i].works) &&
        run_time(&crew[i]) - before < PATIENCE / 2)
      fetch(&crew[i], &caller); /* something else runs in its place */
  }
  atomic_store(&caller_sleeps, 0);
}

/* A worker's own number, of which a later one in its place has another. */
static uintptr_t badge(int place_in_crew) {
  return (uintptr_t)atomic_load(&team) * MOST_THREADS + place_in_crew;
}

/* Until there is something to do, or perhaps for no reason. */
static void await_job(uintptr_t own) {
  for (int i = 0; i < SPINS_OF_WORKERS; i++) {
    if (atomic_load_explicit(&left, memory_order_relaxed) > 0) return;
    pause_briefly();
  }
  int seen = atomic_load(&bell);
  atomic_fetch_add(&sleepers, 1);
  if (atomic_load(&left) <= 0 && badge(own % MOST_THREADS) == own)
    sleep_on(&bell, seen, 0);
  atomic_fetch_sub(&sleepers, 1);
  if (atomic_load(&left) > 1 && atomic_load(&sleepers)) wake(&bell, FAN);
}

static void *be_worker(void *argument) {
  uintptr_t own = (uintptr_t)argument;
  struct worker *self = &crew[own % MOST_THREADS];
  while (badge(own % MOST_THREADS) == own) {
    atomic_store(&self->works, 1);
    work(1);
    atomic_store(&self->works, 0);
    await_job(own);
  }
  return NULL;
}

static int start_worker(void) {
  pthread_attr_t how;
  size_t stack = 0;
  if (pthread_attr_init(&how)) return 0;
  pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
  if (!pthread_attr_getstacksize(&how, &stack) && stack < STACK)
    pthread_attr_setstacksize(&how, STACK);
  void *own = (void *)badge(workers);
  int failed = pthread_create(&crew[workers].thread, &how, be_worker, own);
  pthread_attr_destroy(&how);
  return !failed;
}

/* Send the team home, if there is one, and make the one that is wanted. */
static void muster(int size) {
  mustered = size;
  caller.cpu = -1;
  atomic_fetch_add(&team, 1);
  atomic_fetch_add(&bell, 1);
  if (workers) wake(&bell, INT_MAX);
  workers = 0;
  if (!size) size = processors();
  if (size > MOST_THREADS) size = MOST_THREADS;
  /* Signals are for the threads of the program. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (workers + 1 < size && start_worker()) workers++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Call run(p, i) once for each i from 0 to n-1, in any order, on any thread. */
void uopc_pool_run(task_function *run, void **p, long n) {
  if (n > 1 && n <= INT_MAX && !atomic_exchange(&busy, 1)) {
    int size = atomic_load(&wanted);
    if (mustered != size) muster(size);
    if (workers) {
      task = run;
      table = p;
      rounds = (int)n;
      look_around(&caller);
      atomic_store(&done, 0);
      atomic_store(&left, n);
      atomic_fetch_add(&bell, 1);
      if (atomic_load(&sleepers)) wake(&bell, FAN);
      work(0);
      await_rounds((int)n);
    }
    int shared = workers;
    atomic_store(&busy, 0);
    if (shared) return;
  }
  for (long i = 0; i < n; i++) run(p, i);
}

/* From the next job on, `size` threads are used, the caller's among them; 0 stands for
   as many as there are processors that may be used then. */
void uopc_pool_set_threads(int size) { atomic_store(&wanted, size); }

/* A child of a fork has no workers, and whoever owned the job is not in it. */
static void begin_in_child(void) {
  forget_sleepers();
  mustered = -1;
  workers = 0;
  atomic_store(&left, 0);
  atomic_store(&caller_sleeps, 0);
  atomic_store(&sleepers, 0);
  atomic_store(&busy, 0);
}

__attribute__((constructor)) static void when_loaded(void) {
  pthread_atfork(NULL, NULL, begin_in_child);
}
