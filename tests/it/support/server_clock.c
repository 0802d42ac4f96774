/*
 * A wall clock of its own for a redis-server: preloaded, it adds CLOCK_SHIFT_MS to what the kernel
 * says. libfaketime does not get along with the server's allocator, which asks for the time before
 * any library is set up; this needs no set-up.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const long long SECOND = 1000000000LL;

int clock_gettime(clockid_t id, struct timespec *at) {
  static long long shift = -1;
  if (syscall(SYS_clock_gettime, id, at) != 0) {
    return -1;
  }
  if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) {
    if (shift == -1) {
      const char *millis = getenv("CLOCK_SHIFT_MS");
      shift = millis ? atoll(millis) * 1000000LL : 0;
    }
    long long nanos = at->tv_sec * SECOND + at->tv_nsec + shift;
    at->tv_sec = nanos / SECOND;
    at->tv_nsec = nanos % SECOND;
  }
  return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) {
    *at = now.tv_sec;
  }
  return now.tv_sec;
}
