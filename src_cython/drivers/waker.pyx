# The waker of a leader that sleeps in poll: an eventfd, and two flags.

from libc.stdint cimport uint64_t


cdef struct Waker:
    int fd                   # an eventfd, or -1
    int is_sleeping          # the leader is in poll, or about to be
    int has_followers        # followers left and not taken yet


cdef void waker_open(Waker *self) noexcept:
    # Without one (no descriptor is left) the leader looks at the end of each poll.
    if self.fd < 0:
        self.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)


cdef void waker_close(Waker *self) noexcept:
    if self.fd >= 0:
        close(self.fd)
    self.fd = -1
    self.is_sleeping = self.has_followers = 0


cdef void waker_wake(Waker *self) noexcept:
    cdef uint64_t one = 1
    if atomic_take(&self.is_sleeping) and self.fd >= 0:
        write(self.fd, &one, sizeof(one))


cdef bint waker_is_set_before_sleep(Waker *self) noexcept nogil:
    # Note that the leader is about to sleep, then look for followers: a thread does it
    # in the other order, so one of the two sees the other.
    atomic_give(&self.is_sleeping)
    return self.has_followers != 0


cdef void waker_after_wake(Waker *self, bint is_rung) noexcept nogil:
    cdef uint64_t count
    self.is_sleeping = 0
    if is_rung:
        read(self.fd, &count, sizeof(count))
