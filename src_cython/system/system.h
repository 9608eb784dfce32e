/* Of what Linux has and POSIX has not: one of two files of the same names. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__) && !defined(FASTREDLOCK_PORTABLE)
#include "linux.h"
#else
#include "portable.h"
#endif

/* From now on calls without MSG_DONTWAIT block, and a recv for so long at most, rounded up
   to the kernel's ticks. The limit comes first: without it none would end. */
static inline int socket_block_for(int fd, int ms)
{
    struct timeval limit = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0)
        return -1;
    return fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}
