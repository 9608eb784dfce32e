# The threads that share one engine: one leads, the others ask it and wait.
#
# Whoever holds the mutex is the leader: it alone touches the engine and its sockets. A
# thread that finds it taken leaves a request, rings the bell if the leader sleeps in
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
# masters, debts, links, and a round or batch from its submission to its end belong to
# the leader alone, and the mutex orders one leader's writes before the next one's
# reads; a round's end is published by the lock of its Request. What others read while a
# leader works is: whole numbers that fit a register (counters, verdicts, times), each
# true on its own; and objects (a master's reason and facts, what was said in a round,
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
    TOGETHER = 12            # requests: sent while the word is out

cdef enum:
    LEADER_IN = 0            # with the GIL, or stopped where it gave it away
    LEADER_OUT = 1           # set with the GIL, before it is given away
    LEADER_BACK = 2          # set without it, after all else
    LEADER_OUT_NS = 1_500_000_000      # more than a poll without a bell


cdef struct Bell:
    int fd                   # an eventfd, or -1
    int is_sleeping          # the leader is in poll, or about to be
    int requested            # requests left and not taken yet


@cython.final
@cython.internal
cdef class Crowd:
    """The threads that share one engine."""

    cdef PyThread_type_lock mutex
    cdef unsigned long owner            # thread that holds it...
    cdef size_t greenlet                # ...its greenlet, or 0 (hub.pyx)...
    cdef int depth                      # ...and how often
    cdef int leader_at
    cdef Bell bell
    cdef list requests                  # left for the leader
    cdef list waiting                   # requests whose threads wait
    cdef Request elected                # woken to lead next, not yet there
    cdef Word word                      # who of them is told what is finished

    def __cinit__(self):
        self.bell.fd = -1
        crowd_reset(self)

    def __dealloc__(self):
        if self.mutex != NULL:
            PyThread_free_lock(self.mutex)
        if self.bell.fd >= 0:
            close(self.bell.fd)


cdef int crowd_reset(Crowd self) except -1:
    # Begin anew, alone. After a fork the mutex may be held by a thread that does not
    # exist here, so the old one is left as it is. Where this thread holds it (it forked
    # inside a step) it holds the new one, as often: its outer frames give it back.
    cdef bint is_mine = crowd_is_mine(self)
    self.mutex = PyThread_allocate_lock()
    if self.mutex == NULL:
        raise MemoryError
    if is_mine:
        PyThread_acquire_lock(self.mutex, NOWAIT_LOCK)
    else:
        self.depth = 0
    self.leader_at = LEADER_IN
    self.requests = []
    self.waiting = []
    self.elected = None
    self.word = Word()
    crowd_put_bell_away(self)
    return 0


cdef void crowd_hang_bell(Crowd self) noexcept:
    # Without one (no descriptor is left) the leader looks at the end of each poll.
    if self.bell.fd < 0:
        self.bell.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)


cdef void crowd_put_bell_away(Crowd self) noexcept:
    if self.bell.fd >= 0:
        close(self.bell.fd)
    self.bell.fd = -1
    self.bell.is_sleeping = self.bell.requested = 0


cdef bint crowd_is_mine(Crowd self) noexcept:
    # A signal handler or a finalizer may take a lock in the middle of a step.
    if self.depth == 0 or self.owner != PyThread_get_thread_ident():
        return False
    return self.greenlet == 0 or hub_greenlet() in (0, self.greenlet)


cdef bint crowd_is_green(Crowd self) noexcept:
    # Whether the leader has to wait through the hub.
    return self.greenlet != 0 and hub_greenlet() == self.greenlet


cdef bint crowd_is_left_behind(Crowd self) noexcept:
    # The interpreter ends, and another thread holds the mutex: it will never give it
    # back. False where it is still at its system calls after all this time.
    cdef int64_t stop_ns = clock_ns() + LEADER_OUT_NS
    while atomic_get(&self.leader_at) == LEADER_OUT:
        if clock_ns() > stop_ns:
            return False
        self.bell.requested = 1
        crowd_ring(self)
        sleep_ns(100_000)
    return True


cdef void sleep_ns(int64_t duration_ns) noexcept:
    cdef timespec duration
    duration.tv_sec = duration_ns // NS_PER_S
    duration.tv_nsec = duration_ns % NS_PER_S
    with nogil:
        nanosleep(&duration, NULL)


cdef bint crowd_try_enter(Crowd self) noexcept:
    if PyThread_acquire_lock(self.mutex, NOWAIT_LOCK) == 0:
        return False
    self.owner = PyThread_get_thread_ident()
    self.greenlet = hub_greenlet()
    self.depth = 1
    return True


cdef int crowd_leave(Crowd self) except -1:
    self.depth -= 1
    if self.depth == 0:
        PyThread_release_lock(self.mutex)
        if not word_is_out(self.word):      # else its last one calls
            crowd_elect(self)
    elif self.greenlet != 0:      # the outer step may wait in the hub for what is done
        self.bell.is_sleeping = 1
        crowd_ring(self)
    return 0


cdef int crowd_elect(Crowd self) except -1:
    # One whose round is not finished; one that sleeps rather than one that may be long
    # in a signal handler.
    cdef Request request, chosen = None
    with cython.critical_section(self):
        if self.elected is None:
            for request in self.waiting:
                if not request.is_done and (chosen is None or request.is_waiting):
                    chosen = request
                    if request.is_waiting:
                        break
            if chosen is not None:
                self.elected = chosen
                request_wake(chosen)
    return 0


cdef int crowd_call(Crowd self) except -1:
    # See to it that somebody leads, and knows of the requests.
    if self.depth == 0:
        return crowd_elect(self)
    if self.bell.requested:
        crowd_ring(self)
    return 0


cdef void crowd_ring(Crowd self) noexcept:
    cdef uint64_t one = 1
    if atomic_take(&self.bell.is_sleeping) and self.bell.fd >= 0:
        write(self.bell.fd, &one, sizeof(one))


cdef int crowd_ask(Crowd self, Request request) except -1:
    # Leave a request, and see to it that the leader finds it before it sleeps on. Where
    # more are about to come, the last of them does.
    cdef bint is_last
    with cython.critical_section(self):
        self.requests.append(request)
        self.bell.requested = 1
        is_last = len(self.requests) % TOGETHER == 0 or request.kind != REQUEST_RUN
    return crowd_call(self) if is_last or not word_is_out(self.word) else 0


cdef list crowd_take_requests(Crowd self):
    with cython.critical_section(self):
        taken = self.requests
        self.requests = []
        self.bell.requested = 0
    return taken


cdef int crowd_put_back(Crowd self, list requests) except -1:
    # An exception came before these were taken.
    if requests:
        with cython.critical_section(self):
            self.requests = requests + self.requests
            self.bell.requested = 1
    return 0


cdef int crowd_wait(Crowd self, Request request, int64_t slice_us) except -1:
    # Until there is something to look at. Whoever was elected is on its way now; if it
    # finds a leader, that one elects again.
    cdef bint is_signal
    if not word_go(self.word, request):
        return 0
    is_signal = request_wait(request, slice_us)
    crowd_come(self, request)
    if is_signal:
        PyErr_CheckSignals()
    return 0


cdef bint crowd_come(Crowd self, Request request) except -1:
    # A thread is awake. What it was woken for is its own now; the rest it passes on.
    with cython.critical_section(self):
        if self.elected is request:
            self.elected = None
            request.is_called = True
    if word_come(self.word, request):
        crowd_call(self)
    return request.is_called


cdef int crowd_go(Crowd self, Request request) except -1:
    # A thread that waited goes. If it was elected it passes that on, also where it
    # woke for its own round, which had been finished meanwhile.
    with cython.critical_section(self):
        forget_request(self.waiting, request)
        forget_request(self.requests, request)
    return crowd_call(self) if crowd_come(self, request) else 0


cdef bint bell_is_rung_before_sleep(Bell *self) noexcept nogil:
    # Say that the leader is about to sleep, then look for requests: a thread does it in
    # the other order, so one of the two sees the other.
    atomic_give(&self.is_sleeping)
    return self.requested != 0


cdef void bell_on_wake(Bell *self, bint is_rung) noexcept nogil:
    cdef uint64_t count
    self.is_sleeping = 0
    if is_rung:
        read(self.fd, &count, sizeof(count))
