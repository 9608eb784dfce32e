"""The POSIX, Linux and CPython calls that Cython's own modules leave out.

What only Linux has is wrapped in one name each in system/system.h, with a twin for
other systems. On Linux a name is its system call and nothing else.
"""

from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int64_t, uint32_t
from posix.signal cimport sigset_t


cdef extern from "<errno.h>" nogil:
    enum: ECANCELED

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    enum: POLLIN, POLLOUT

cdef extern from "system/system.h" nogil:
    enum: IS_PORTABLE      # 1: the twins of Linux's calls, and no epoll
    enum: SYSTEM_CLOCK     # monotonic, and goes on during suspend where there is one
    int poll_for(pollfd *fds, unsigned long count, int64_t timeout_ns)
    ssize_t random_draw(void *data, size_t size)      # up to 256 bytes; -1 and errno
    int end_with_parent_by(int signal)                # -1 and errno: not here
    int adopt_all_orphans()                           # -1: not here
    int socket_open(int family)                       # non-blocking; -1 and errno
    void socket_drop_after(int fd, int ms)            # ms without an acknowledgement
    uint32_t descriptor_epoch      # counts forks, and descriptors that others closed
    ctypedef struct Origin:        # what a descriptor is, as noted at its making
        pass
    Origin origin_of(int fd)
    bint origin_is_still(const Origin *origin, int fd)
    void origin_close(const Origin *origin, int fd)      # if it still is
    ctypedef struct Event:
        int fd             # readable while it is set; -1: it is not open
    int event_open(Event *event)                      # -1 and errno
    void event_close(Event *event)
    void event_set(Event *event)
    bint event_clear(Event *event)                    # whether it was set
    # Of an epoll, which an event loop watches; never called where there is none.
    int watch_open()                                  # -1 and errno, as both below
    int watch_set(int epoll_fd, int fd, uint32_t events, bint is_new)
    int watch_end(int epoll_fd, int fd)

cdef extern from *:
    """
    static inline void atomic_give(int *flag) {
        __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    static inline int atomic_take(int *flag) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        return __atomic_exchange_n(flag, 0, __ATOMIC_SEQ_CST);
    }
    static inline void atomic_put(int *flag, int value) {
        __atomic_store_n(flag, value, __ATOMIC_RELEASE);
    }
    static inline int atomic_get(int *flag) {
        return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
    }
    #if PY_VERSION_HEX >= 0x030D0000
    #define interpreter_is_finalizing() Py_IsFinalizing()
    #else
    #define interpreter_is_finalizing() _Py_IsFinalizing()
    #endif
    """
    void atomic_give(int *flag) noexcept nogil
    int atomic_take(int *flag) noexcept nogil
    void atomic_put(int *flag, int value) noexcept nogil
    int atomic_get(int *flag) noexcept nogil
    bint interpreter_is_finalizing() noexcept nogil

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept nogil,
                       void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    struct sockaddr:
        unsigned short sa_family
    struct sockaddr_storage:
        unsigned short ss_family
    enum: AF_UNIX, AF_UNSPEC, SOCK_STREAM, SOL_SOCKET, SO_ERROR
    enum: SO_KEEPALIVE, MSG_NOSIGNAL, MSG_DONTWAIT, SHUT_RDWR
    int shutdown(int fd, int how)
    int connect(int fd, const sockaddr *address, socklen_t size)
    int getsockname(int fd, sockaddr *address, socklen_t *size)
    int getpeername(int fd, sockaddr *address, socklen_t *size)
    int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
    int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
    ssize_t send(int fd, const void *data, size_t size, int flags)
    ssize_t recv(int fd, void *data, size_t size, int flags)

cdef extern from "<netinet/in.h>" nogil:
    enum: IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    enum: TCP_NODELAY, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT

cdef extern from "<sys/un.h>" nogil:
    struct sockaddr_un:
        unsigned short sun_family
        char sun_path[108]

cdef extern from "<netdb.h>" nogil:
    enum: AI_NUMERICHOST
    struct addrinfo:
        int ai_flags
        int ai_family
        int ai_socktype
        socklen_t ai_addrlen
        sockaddr *ai_addr
        addrinfo *ai_next
    int getaddrinfo(const char *host, const char *service, const addrinfo *hints,
                    addrinfo **found)
    void freeaddrinfo(addrinfo *found)

cdef extern from "pythread.h" nogil:
    enum: PY_LOCK_ACQUIRED
    int PyThread_acquire_lock_timed(PyThread_type_lock lock, long long us, int is_intr)
