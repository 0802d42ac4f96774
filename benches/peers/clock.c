/* Prints the nanoseconds since the epoch as a dynamically linked program sees them: where a
 * shifted clock is preloaded, its time is shifted. */
#include <stdio.h>
#include <time.h>

int main(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    printf("%lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
    return 0;
}
