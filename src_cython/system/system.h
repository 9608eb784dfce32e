/* Of what Linux has and POSIX has not: one of two files of the same names. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What a descriptor is, as noted at its making. A program may close all numbers, before
   or after a fork (a daemon does), and open others under them: those are not ours to read,
   to write to, or to close. A socket has an inode of its own; eventfds and epolls share
   one, and are ours as long as no fork and no such loss was noticed since. */
static uint32_t descriptor_epoch;

typedef struct {
    dev_t device;
    ino_t inode;
    int is_socket;
    uint32_t epoch;
} Origin;

static inline Origin origin_of(int fd)
{
    struct stat made = {0};
    fstat(fd, &made);
    return (Origin){made.st_dev, made.st_ino, S_ISSOCK(made.st_mode), descriptor_epoch};
}

static inline int origin_is_still(const Origin *origin, int fd)
{
    Origin now = origin_of(fd);
    int is_new = origin->epoch == now.epoch;
    if (fd >= 0 && now.device == origin->device && now.inode == origin->inode)
        return now.is_socket || is_new;
    if (fd >= 0 && is_new)
        __atomic_fetch_add(&descriptor_epoch, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static inline void origin_close(const Origin *origin, int fd)
{
    if (origin_is_still(origin, fd))
        close(fd);
}

#if defined(__linux__) && !defined(FASTREDLOCK_PORTABLE)
#include "linux.h"
#else
#include "portable.h"
#endif
