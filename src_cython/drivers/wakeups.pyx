# Wake-ups: in which order followers are woken whose rounds are finished.
#
# Only one thread can have the GIL. Woken all at once the others would sleep once more,
# for that: so two at a time are woken (one alone leaves a core idle while it wakes up),
# and each wakes the next one as soon as it is awake, before anything else. While
# wake-ups are under way, the threads that are awake queue their next work, and the
# leader is not woken for it: the last one sees to that, and every 24th follower.
# (64 threads, pairs/s: 18,000 woken all at once, 21,000 one by one, 28,000 so.)
#
# Only a thread that sleeps is woken, so each wake-up arrives: as soon as the scheduler
# and the GIL let it.

cdef enum:
    AT_ONCE = 2
    STUCK_NS = 5_000_000     # a thread not awake by then is not waited for


@cython.final
@cython.internal
cdef class Wakeups:
    """The followers that are done, and those that are being woken."""

    cdef list finished              # done, their threads not yet woken
    cdef int under_way              # woken, not yet awake; less if one comes late
    cdef int64_t woken_at_ns        # the last of these

    def __cinit__(self):
        self.finished = []


cdef bint wakeups_are_under_way(Wakeups self) noexcept:
    return self.under_way > 0 and clock_ns() - self.woken_at_ns < STUCK_NS


cdef int wakeups_add(Wakeups self, Follower follower) except -1:
    follower.is_done = True
    if follower.is_waiting:
        self.finished.append(follower)
    return wakeups_wake_next(self)


cdef int wakeups_wake_next(Wakeups self) except -1:
    cdef Follower follower
    if not wakeups_are_under_way(self):
        self.under_way = 0
    while self.finished and self.under_way < AT_ONCE:
        follower = <Follower>self.finished.pop(0)
        follower.is_waking = True
        self.under_way += 1
        self.woken_at_ns = clock_ns()
        follower_wake(follower)
    return 0


cdef bint wakeups_before_sleep(Wakeups self, Follower follower) except -1:
    # A thread is about to sleep. Returns False where it is done already.
    follower.is_waiting = not follower.is_done
    return follower.is_waiting


cdef bint wakeups_after_wake(Wakeups self, Follower follower) except -1:
    # A thread is awake, for whatever reason. Returns whether it was the last of the
    # wake-ups under way.
    cdef bint was_waking
    was_waking = follower.is_waking
    if was_waking:
        self.under_way = max(0, self.under_way - 1)
    elif follower.is_done and follower.is_waiting:
        follower_forget(self.finished, follower)
    follower.is_waking = follower.is_waiting = False
    if was_waking:
        wakeups_wake_next(self)
    return was_waking and not wakeups_are_under_way(self)
