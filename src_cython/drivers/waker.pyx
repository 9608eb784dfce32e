# The waker of a leader that sleeps in poll: an event, and two flags.


cdef struct Waker:
    Event event              # its fd is -1 where there is none
    int is_sleeping          # the leader is in poll, or about to be
    int has_followers        # followers left and not taken yet
    bint is_alone            # of one master: none came for a while (links)


cdef void waker_open(Waker *self) noexcept:
    # Without one (no descriptor is left) the leader looks at the end of each poll.
    if self.event.fd < 0:
        event_open(&self.event)


cdef void waker_close(Waker *self) noexcept:
    # Followers that were queued meanwhile are still to be taken.
    event_close(&self.event)
    self.is_sleeping = 0


cdef void waker_wake(Waker *self) noexcept:
    if atomic_take(&self.is_sleeping) and self.event.fd >= 0:
        event_set(&self.event)


cdef bint waker_is_set_before_sleep(Waker *self) noexcept nogil:
    # Note that the leader is about to sleep, then look for followers: a thread does it
    # in the other order, so one of the two sees the other.
    atomic_give(&self.is_sleeping)
    return self.has_followers != 0


cdef void waker_after_wake(Waker *self, bint is_rung) noexcept nogil:
    self.is_sleeping = 0
    if is_rung:
        event_clear(&self.event)
