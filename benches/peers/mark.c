/* The job of every program that is measured: its first act is to write down when it began.
 *
 * mark FILE [MILLISECONDS]: appends the nanoseconds since the epoch to FILE, as 19 digits and a
 * line feed, and stays for so many milliseconds. Linked statically, so that neither the dynamic
 * linker nor a preloaded library (a shifted clock) is part of what it measures. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct timespec began;
    char line[32];
    clock_gettime(CLOCK_REALTIME, &began);
    if (argc < 2)
        return 2;
    int length = snprintf(line, sizeof line, "%010lld%09ld\n", (long long)began.tv_sec, began.tv_nsec);
    int file = open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (file < 0 || write(file, line, length) != length)
        return 1;
    if (argc > 2)
        usleep(1000 * (useconds_t)atoi(argv[2]));
    return 0;
}
