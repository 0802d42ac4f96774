/* Preloaded before libfaketime 0.9.10, which is told to leave the steady clock alone but refuses to
 * sleep until an instant of it (EINVAL); Python sleeps like that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef int sleeper(clockid_t, int, const struct timespec *, struct timespec *);

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    if (clock == CLOCK_MONOTONIC)
        return syscall(SYS_clock_nanosleep, clock, flags, until, left) == 0 ? 0 : errno;
    sleeper *next = (sleeper *)dlsym(RTLD_NEXT, "clock_nanosleep");
    return next(clock, flags, until, left);
}
