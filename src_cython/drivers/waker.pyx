# HEADER-WAKER

from libc.stdint cimport uint64_t


cdef struct Waker:
    int fd                   # an eventfd, or -1
    int is_sleeping          # the leader is in poll, or about to be
    int has_followers        # followers left and not taken yet


cdef void leader_open_waker(Leadership self) noexcept:
    # Without one (no descriptor is left) the leader looks at the end of each poll.
    if self.waker.fd < 0:
        self.waker.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)


cdef void leader_close_waker(Leadership self) noexcept:
    if self.waker.fd >= 0:
        close(self.waker.fd)
    self.waker.fd = -1
    self.waker.is_sleeping = self.waker.has_followers = 0


cdef void leader_wake(Leadership self) noexcept:
    cdef uint64_t one = 1
    if atomic_take(&self.waker.is_sleeping) and self.waker.fd >= 0:
        write(self.waker.fd, &one, sizeof(one))


cdef bint waker_is_set_before_sleep(Waker *self) noexcept nogil:
    # Say that the leader is about to sleep, then look for requests: a thread does it in
    # the other order, so one of the two sees the other.
    atomic_give(&self.is_sleeping)
    return self.has_followers != 0


cdef void waker_after_wake(Waker *self, bint is_rung) noexcept nogil:
    cdef uint64_t count
    self.is_sleeping = 0
    if is_rung:
        read(self.fd, &count, sizeof(count))
