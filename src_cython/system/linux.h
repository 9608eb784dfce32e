/* The names of system.pxd on Linux: each one is its system call, no more. */
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>

#ifndef TCP_USER_TIMEOUT /* not in every C library's <netinet/tcp.h> */
#define TCP_USER_TIMEOUT 18
#endif

#define IS_PORTABLE 0

/* Goes on during suspend, as the servers' ttl does (clock_gettime(2)). */
#define SYSTEM_CLOCK CLOCK_BOOTTIME

#define random_draw(data, size) getrandom(data, size, 0)

/* The signal that ends a process when the thread that forked it has ended; it outlasts
   exec (prctl(2)). */
#define end_with_parent_by(signal) prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0)
/* Descendants whose parent has ended become children of this process (prctl(2)). */
#define adopt_all_orphans() prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

static inline int poll_for(struct pollfd *fds, unsigned long count, int64_t timeout_ns)
{
    struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    return ppoll(fds, count, &timeout, NULL);
}

typedef struct {
    int fd;
    Origin origin;
} Event;

static inline int event_open(Event *event)
{
    event->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    event->origin = origin_of(event->fd);
    return event->fd < 0 ? -1 : 0;
}

static inline void event_close(Event *event)
{
    origin_close(&event->origin, event->fd);
    event->fd = -1;
}

static inline void event_set(Event *event)
{
    uint64_t one = 1;
    if (!origin_is_still(&event->origin, event->fd))
        event->fd = -1;
    else if (write(event->fd, &one, sizeof(one)) < 0)
        return; /* EAGAIN: it is set, 2^64 - 1 times */
}

static inline int event_clear(Event *event)
{
    uint64_t count;
    if (!origin_is_still(&event->origin, event->fd)) {
        event->fd = -1;
        return 0;
    }
    return read(event->fd, &count, sizeof(count)) > 0;
}

static inline int socket_open(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static inline void socket_drop_after(int fd, int ms)
{
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

#define watch_open() epoll_create1(EPOLL_CLOEXEC)
#define watch_end(epoll_fd, fd) epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL)

/* The events of poll(2) are those of epoll(7). */
static inline int watch_set(int epoll_fd, int fd, uint32_t events, int is_new)
{
    struct epoll_event event = {.events = events};
    return epoll_ctl(epoll_fd, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}
