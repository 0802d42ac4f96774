/*
 * A wall clock of its own for a redis-server: preloaded, it adds what CLOCK_FILE holds, a number of
 * nanoseconds, to what the kernel says. The file is mapped, so a test that writes another number
 * steps the clock of the running server. libfaketime does not get along with the server's
 * allocator, which asks for the time before any library is set up; this needs no set-up.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const long long SECOND = 1000000000LL;

static long long shift(void) {
  static const volatile long long *shared;
  if (!shared) {
    const char *path = getenv("CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(0, sizeof *shared, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) {
      close(file);
    }
    if (map == MAP_FAILED) {
      abort();
    }
    shared = map;
  }
  return *shared;
}

int clock_gettime(clockid_t id, struct timespec *at) {
  if (syscall(SYS_clock_gettime, id, at) != 0) {
    return -1;
  }
  if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) {
    long long nanos = at->tv_sec * SECOND + at->tv_nsec + shift();
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
