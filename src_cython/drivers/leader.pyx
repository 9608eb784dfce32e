# The threads that share one engine: one leads, the others ask it and wait.
#
# Whoever holds the mutex is the leader: it alone touches the engine and its sockets. A
# thread that finds it taken leaves a request, rings the waker if the leader sleeps in
# poll, and waits on a lock of its own. So the commands of all threads go out in the
# leader's next single send per master, and a caller that is alone pays for one free
# mutex. On leaving, the leader elects one of those who wait; while the word is out
# (word.pyx), the last one who has it does.
#
# Nothing is lost in between, because both sides look twice: a thread tries the mutex
# once more after leaving its request, a leader looks for requests once more after
# giving the mutex back, and before it sleeps. A thread that comes while the word is out
# does not try, but waits for whoever has it last, and no longer than its patience.
#
# Without the GIL (free-threaded CPython) it stays correct, for these reasons. Engine,
# masters, in_flight, links, and a round or batch from its submission to its end belong to
# the leader alone, and the mutex orders one leader's writes before the next one's
# reads; a round's end is published by the lock of its Follower. What others read while a
# leader works is: whole numbers that fit a register (counters, verdicts, times), each
# true on its own; and objects (a master's reason and server_info, what was said in a round,
# the lists and the elected one here), read and replaced in critical sections. An
# awaitable engine belongs to the thread of its loop. In Python, a lease's validity is
# changed in single steps on lists and dicts, which have locks of their own there
# (_extensions).
#
# When the interpreter ends, a daemon thread stops at the moment at which it next wants
# the GIL, and never gives the mutex back. `leader_at` tells the last thread where that
# leader is: OUT, still in its system calls without the GIL; BACK from them, and so
# stopped between two steps; or IN, stopped in the middle of anything.

cimport cython
from cpython.pythread cimport (
    NOWAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_get_thread_ident, PyThread_release_lock, PyThread_type_lock,
)
from libc.stdint cimport int64_t, uint64_t
from posix.time cimport timespec

cdef enum:
    SLICE_US = 100_000       # how long a thread waits before it looks for itself
    AWAIT_US = 1_000         # the same where nobody will wake it
    PATIENCE_US = 20_000     # the same while the word is out, before it leads
    TOGETHER = 12            # followers: sent while the word is out

cdef enum:
    LEADER_HAS_GIL = 0            # with the GIL, or stopped where it gave it away
    LEADER_IN_SYSTEM = 1           # set with the GIL, before it is given away
    LEADER_OUT_OF_SYSTEM = 2          # set without it, after all else
    LEADER_IN_SYSTEM_NS = 1_500_000_000      # more than a poll without a waker


@cython.final
@cython.internal
cdef class Leadership:
    """The threads that share one engine."""

    cdef PyThread_type_lock mutex
    cdef unsigned long owner            # thread that holds it...
    cdef size_t greenlet                # ...its greenlet, or 0 (hub.pyx)...
    cdef int depth                      # ...and how often
    cdef int leader_at
    cdef Waker waker
    cdef list followers                  # left for the leader
    cdef list waiting                   # followers whose threads wait
    cdef Follower elected                # woken to lead next, not yet there
    cdef Wakeups wakeups                      # who of them is told what is finished

    def __cinit__(self):
        self.waker.fd = -1
        leader_reset(self)

    def __dealloc__(self):
        if self.mutex != NULL:
            PyThread_free_lock(self.mutex)
        if self.waker.fd >= 0:
            close(self.waker.fd)


cdef int leader_reset(Leadership self) except -1:
    # Begin anew, alone. After a fork the mutex may be held by a thread that does not
    # exist here, so the old one is left as it is. Where this thread holds it (it forked
    # inside a step) it holds the new one, as often: its outer frames give it back.
    cdef bint is_mine = leader_is_caller(self)
    self.mutex = PyThread_allocate_lock()
    if self.mutex == NULL:
        raise MemoryError
    if is_mine:
        PyThread_acquire_lock(self.mutex, NOWAIT_LOCK)
    else:
        self.depth = 0
    self.leader_at = LEADER_HAS_GIL
    self.followers = []
    self.waiting = []
    self.elected = None
    self.wakeups = Wakeups()
    leader_close_waker(self)
    return 0


cdef bint leader_is_caller(Leadership self) noexcept:
    # A signal handler or a finalizer may take a lock in the middle of a step.
    if self.depth == 0 or self.owner != PyThread_get_thread_ident():
        return False
    return self.greenlet == 0 or greenlet_hub_caller() in (0, self.greenlet)


cdef bint leader_is_green(Leadership self) noexcept:
    # Whether the leader has to wait through the hub.
    return self.greenlet != 0 and greenlet_hub_caller() == self.greenlet


cdef bint leader_was_stopped(Leadership self) noexcept:
    # The interpreter ends, and another thread holds the mutex: it will never give it
    # back. False where it is still at its system calls after all this time.
    cdef int64_t stop_ns = clock_ns() + LEADER_IN_SYSTEM_NS
    while atomic_get(&self.leader_at) == LEADER_IN_SYSTEM:
        if clock_ns() > stop_ns:
            return False
        self.waker.has_followers = 1
        leader_wake(self)
        sleep_ns(100_000)
    return True


cdef bint leader_try_enter(Leadership self) noexcept:
    if PyThread_acquire_lock(self.mutex, NOWAIT_LOCK) == 0:
        return False
    self.owner = PyThread_get_thread_ident()
    self.greenlet = greenlet_hub_caller()
    self.depth = 1
    return True


cdef int leader_leave(Leadership self) except -1:
    self.depth -= 1
    if self.depth == 0:
        PyThread_release_lock(self.mutex)
        if not wakeups_are_under_way(self.wakeups):      # else its last one calls
            leader_elect(self)
    elif self.greenlet != 0:      # the outer step may wait in the hub for what is done
        self.waker.is_sleeping = 1
        leader_wake(self)
    return 0


cdef int leader_elect(Leadership self) except -1:
    # One whose round is not finished; one that sleeps rather than one that may be long
    # in a signal handler.
    cdef Follower follower, chosen = None
    with cython.critical_section(self):
        if self.elected is None:
            for follower in self.waiting:
                if not follower.is_done and (chosen is None or follower.is_waiting):
                    chosen = follower
                    if follower.is_waiting:
                        break
            if chosen is not None:
                self.elected = chosen
                follower_wake(chosen)
    return 0


cdef int leader_ensure(Leadership self) except -1:
    # See to it that somebody leads, and knows of the requests.
    if self.depth == 0:
        return leader_elect(self)
    if self.waker.has_followers:
        leader_wake(self)
    return 0


cdef int leader_add_follower(Leadership self, Follower follower) except -1:
    # Leave a request, and see to it that the leader finds it before it sleeps on. Where
    # more are about to come, the last of them does.
    cdef bint is_last
    with cython.critical_section(self):
        self.followers.append(follower)
        self.waker.has_followers = 1
        is_last = len(self.followers) % TOGETHER == 0 or follower.kind != FOLLOWER_RUN
    return leader_ensure(self) if is_last or not wakeups_are_under_way(self.wakeups) else 0


cdef list leader_take_followers(Leadership self):
    with cython.critical_section(self):
        taken = self.followers
        self.followers = []
        self.waker.has_followers = 0
    return taken


cdef int leader_put_back(Leadership self, list followers) except -1:
    # An exception came before these were taken.
    if followers:
        with cython.critical_section(self):
            self.followers = followers + self.followers
            self.waker.has_followers = 1
    return 0


cdef int leader_await(Leadership self, Follower follower, int64_t slice_us) except -1:
    # Until there is something to look at. Whoever was elected is on its way now; if it
    # finds a leader, that one elects again.
    cdef bint is_signal
    if not wakeups_before_sleep(self.wakeups, follower):
        return 0
    is_signal = follower_wait(follower, slice_us)
    leader_after_wake(self, follower)
    if is_signal:
        PyErr_CheckSignals()
    return 0


cdef bint leader_after_wake(Leadership self, Follower follower) except -1:
    # A thread is awake. What it was woken for is its own now; the rest it passes on.
    with cython.critical_section(self):
        if self.elected is follower:
            self.elected = None
            follower.is_called = True
    if wakeups_after_wake(self.wakeups, follower):
        leader_ensure(self)
    return follower.is_called


cdef int leader_remove_follower(Leadership self, Follower follower) except -1:
    # A thread that waited goes. If it was elected it passes that on, also where it
    # woke for its own round, which had been finished meanwhile.
    with cython.critical_section(self):
        follower_forget(self.waiting, follower)
        follower_forget(self.followers, follower)
    return leader_ensure(self) if leader_after_wake(self, follower) else 0
