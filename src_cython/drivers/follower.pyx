# A follower: the work that a thread leaves to the leader, and the lock on which it
# waits. Its states are in leader.

cdef enum:
    FOLLOWER_RUN = 0         # a round or a batch, until it is finished
    FOLLOWER_WITHDRAW = 1    # one that its caller gave up; no thread waits
    FOLLOWER_CLOSE = 2       # the engine
    FOLLOWER_END = 3         # the acquires under way: the interpreter ends

cdef enum:
    BLIND_NS = 10_000_000    # a slice of a greenlet that cannot be woken


cdef class Leadership         # drivers/leader


@cython.final
@cython.internal
cdef class Follower:
    """A thread's work for the leader."""

    cdef Leadership leadership
    cdef object work                    # a Round, a Batch, or None
    cdef int kind
    cdef bint is_done
    cdef bint is_waiting                # asleep: not leading, in no signal handler
    cdef bint is_waking                 # woken because it is done, not yet awake
    cdef bint is_elected                # to lead, and it has not led since
    cdef bint is_posted                 # the lock is free: a free one is not freed
    cdef int64_t timeout_ns
    cdef object settlement              # of the commands it causes, once it was taken
    cdef PyThread_type_lock lock        # free once there is a reason to wake
    cdef bint is_green                  # waits through the hub instead, ...
    cdef Event event                    # ... for this one, if it is open

    def __cinit__(self, Leadership leadership not None, int kind, object work):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError
        PyThread_acquire_lock(self.lock, NOWAIT_LOCK)
        self.leadership = leadership
        self.kind = kind
        self.work = work
        self.event.fd = -1
        self.is_green = greenlet_hub_caller() != 0
        if self.is_green:
            event_open(&self.event)

    def __dealloc__(self):
        if self.lock != NULL:      # else no event, either
            PyThread_free_lock(self.lock)
            event_close(&self.event)


cdef void follower_wake(Follower self) noexcept:
    if self.is_posted:
        return
    self.is_posted = True
    if self.is_green:
        if self.event.fd >= 0:
            event_set(&self.event)
    else:
        PyThread_release_lock(self.lock)


cdef bint follower_wait(Follower self, int64_t slice_us) except -1:
    # Wait to be woken, or for the end of a slice; True where it was not woken: a signal
    # may have come, also just before this, or to another thread. The reason for a
    # wake-up is written before it, and read after this.
    cdef int outcome
    if self.is_green:
        follower_wait_in_hub(self, slice_us * 1000)
        return False
    with nogil:
        outcome = <int>PyThread_acquire_lock_timed(self.lock, slice_us, 1)
    if outcome == PY_LOCK_ACQUIRED:
        self.is_posted = False
    return outcome != PY_LOCK_ACQUIRED


cdef int follower_wait_in_hub(Follower self, int64_t wait_ns) except -1:
    if self.event.fd < 0:      # no descriptor was left: it cannot be woken
        return greenlet_hub_wait([], [], min(wait_ns, <int64_t>BLIND_NS))
    greenlet_hub_wait([self.event.fd], [], wait_ns)
    if event_clear(&self.event):
        self.is_posted = False
    return 0


cdef int follower_forget(list followers, Follower follower) except -1:
    cdef Py_ssize_t i
    for i in range(len(followers)):
        if followers[i] is follower:
            del followers[i]
            break
    return 0
