/* The names of system.pxd by POSIX, for macOS; on Linux with FASTREDLOCK_PORTABLE=1, so
   that the tests can run it. Nothing here is slower by an order, but a wait ends up to
   1 ms late. */
#include <limits.h>
#include <stdint.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

#define IS_PORTABLE 1

/* macOS: both of its monotonic clocks go on during suspend; this one is in ns, and nothing
   adjusts it (clock_gettime(3) there). */
#ifdef __APPLE__
#define SYSTEM_CLOCK CLOCK_MONOTONIC_RAW
#else
#define SYSTEM_CLOCK CLOCK_MONOTONIC
#endif

#ifndef TCP_KEEPIDLE
#define TCP_KEEPIDLE TCP_KEEPALIVE
#endif
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SO_NOSIGPIPE is set instead */
#endif

/* Rounded up: a wait that ends too early is repeated, again and again. */
static inline int poll_for(struct pollfd *fds, unsigned long count, int64_t timeout_ns)
{
    int64_t ms = (timeout_ns + 999999) / 1000000;
    return poll(fds, (nfds_t)count, ms > INT_MAX ? INT_MAX : (int)ms);
}

/* At most 256 bytes, all or none (getentropy(3)). */
static inline ssize_t random_draw(void *data, size_t size)
{
    return getentropy(data, size) == 0 ? (ssize_t)size : -1;
}

static inline int end_with_parent_by(int signal)
{
    (void)signal;
    errno = ENOSYS;
    return -1;
}

#define adopt_all_orphans() (-1)

static inline int set_up_descriptor(int fd)
{
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return -1;
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* A pipe, with a byte in it while the event is set. */
typedef struct {
    int fd;
    int writing_fd;
    Origin origin, writing_origin;
} Event;

static inline void event_close(Event *event)
{
    if (event->fd >= 0) {
        origin_close(&event->origin, event->fd);
        origin_close(&event->writing_origin, event->writing_fd);
    }
    event->fd = -1;
}

static inline int event_open(Event *event)
{
    int ends[2], error;
    event->fd = -1;
    if (pipe(ends) != 0)
        return -1;
    event->fd = ends[0];
    event->writing_fd = ends[1];
    event->origin = origin_of(event->fd);
    event->writing_origin = origin_of(event->writing_fd);
    if (set_up_descriptor(ends[0]) == 0 && set_up_descriptor(ends[1]) == 0)
        return 0;
    error = errno;
    event_close(event);
    errno = error;
    return -1;
}

static inline void event_set(Event *event)
{
    if (!origin_is_still(&event->writing_origin, event->writing_fd))
        event->fd = -1;
    else if (write(event->writing_fd, "", 1) < 0)
        return; /* EAGAIN: it is set, a pipe full of times */
}

static inline int event_clear(Event *event)
{
    char bytes[256];
    int was_set = 0;
    ssize_t size;
    if (!origin_is_still(&event->origin, event->fd)) {
        event->fd = -1;
        return 0;
    }
    do {
        size = read(event->fd, bytes, sizeof(bytes));
        was_set = was_set || size > 0;
    } while (size == (ssize_t)sizeof(bytes));
    return was_set;
}

static inline int socket_open(int family)
{
    int fd = socket(family, SOCK_STREAM, 0), error;
    if (fd < 0)
        return -1;
    if (set_up_descriptor(fd) != 0) {
        error = errno;
        close(fd);
        errno = error;
        return -1;
    }
#ifdef SO_NOSIGPIPE
    {
        int one = 1;
        setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof(one));
    }
#endif
    return fd;
}

static inline void socket_drop_after(int fd, int ms)
{
#ifdef TCP_RXT_CONNDROPTIME
    int seconds = (ms + 999) / 1000;
    setsockopt(fd, IPPROTO_TCP, TCP_RXT_CONNDROPTIME, &seconds, sizeof(seconds));
#elif defined(TCP_USER_TIMEOUT)
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
#else
    (void)fd;
    (void)ms;
#endif
}

/* There is no epoll: the event loop watches each connection (asyncio.pyx). Code
   that is never reached names these. */
#define watch_open() (errno = ENOSYS, -1)
#define watch_set(epoll_fd, fd, events, is_new) ((void)(events), (void)(is_new), -1)
#define watch_end(epoll_fd, fd) (-1)
