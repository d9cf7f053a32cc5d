/* The wall clock of one process, put forward or back while it runs: for LD_PRELOAD.

   BENCHMARK_CLOCK names a file whose first eight bytes are the seconds, as a double, by which the wall clock is wrong. The monotonic
   clock stays as it is. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile double *wrong;
static int (*real_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void find(void) {
  const char *name = getenv("BENCHMARK_CLOCK");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  real_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  if (file < 0) return;
  void *seen = mmap(NULL, sizeof *wrong, PROT_READ, MAP_SHARED, file, 0);
  if (seen != MAP_FAILED) wrong = seen;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  if (!real_clock) find();
  int found = real_clock(clock, time);
  if (!found && wrong && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    double whole, nanoseconds = time->tv_nsec + 1e9 * modf(*wrong, &whole);
    time->tv_sec += (time_t)whole;
    if (nanoseconds >= 1e9) time->tv_sec++, nanoseconds -= 1e9;
    if (nanoseconds < 0) time->tv_sec--, nanoseconds += 1e9;
    time->tv_nsec = (long)nanoseconds;
  }
  return found;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  time->tv_sec = exact.tv_sec, time->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *kept) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (kept) *kept = exact.tv_sec;
  return exact.tv_sec;
}
