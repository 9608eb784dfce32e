/* Loaded before libc (LD_PRELOAD) into a server: its clocks are the number of
   microseconds in the first eight bytes of the file that TEST_CLOCK names. Valkey reads
   the time from the processor, if /proc/cpuinfo lists a constant_tsc: so it finds none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static int64_t now_us(void)
{
    static volatile int64_t *shared;

    if (shared == NULL) {
        int fd = open(getenv("TEST_CLOCK"), O_RDONLY);
        shared = mmap(NULL, sizeof *shared, PROT_READ, MAP_SHARED, fd, 0);
    }
    return *shared;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int64_t us = now_us();

    (void)zone;
    now->tv_sec = us / 1000000;
    now->tv_usec = us % 1000000;
    return 0;
}

time_t time(time_t *now)
{
    time_t seconds = now_us() / 1000000;

    if (now != NULL)
        *now = seconds;
    return seconds;
}

int clock_gettime(clockid_t which, struct timespec *now)
{
    int64_t us = now_us();

    (void)which;
    now->tv_sec = us / 1000000;
    now->tv_nsec = us % 1000000 * 1000;
    return 0;
}

FILE *fopen(const char *restrict name, const char *restrict mode)
{
    FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");

    return strcmp(name, "/proc/cpuinfo") == 0 ? NULL : next(name, mode);
}
