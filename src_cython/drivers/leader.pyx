# The threads that share an engine: one leads and does the I/O for all, the others
# follow, and are woken one after the other.
#
# The leader is the thread that holds the mutex: it alone touches the engine and its
# sockets. A thread that finds the mutex taken becomes a follower: it queues its work,
# wakes the leader from poll, and sleeps on a lock of its own. So the commands of all
# threads are sent in the leader's next single write per master, and a caller that is
# alone pays for one free mutex. One follower's states:
#
#   QUEUED   in `followers`, until the leader takes its work and submits it
#   ASLEEP   `is_waiting`, on its own lock, for a wake-up or the end of a slice
#   ELECTED  `is_elected`: woken to try the mutex, and to lead
#   DONE     `is_done`: its round is finished; it is woken in its order (wakeups)
#
#   QUEUED  --leader_await-->       ASLEEP    its work may be taken before or after
#   ASLEEP  --end of a slice-->     QUEUED    it tries the mutex by itself
#   ASLEEP  --the leader leaves-->  ELECTED   leader_elect; while wake-ups are under
#                                             way, the last thread woken elects
#   ELECTED --another one leads-->  ASLEEP    that one elects again
#   any     --round is finished-->  DONE
#
# Nothing is lost in between, because both sides check twice: a thread tries the mutex
# once more after it was queued, a leader looks for followers once more after it gave
# the mutex back, and before it sleeps. A thread that comes while wake-ups are under way
# does not try, but waits for the last of them, at most PATIENCE_US.
#
# All of this counts on the GIL, which is given away in system calls alone: a follower
# that asks whether its work is finished, and then whether it is done, sees both of one
# moment. So the extension does not declare that it runs without (free-threaded
# CPython): importing it turns the GIL on, and where that is forbidden no engine is
# made (_locking/driver). An awaitable engine belongs to the thread of its loop.
#
# When the interpreter ends, a daemon thread stops at the moment at which it next wants
# the GIL, and never gives the mutex back. `leader_at` shows the last thread where that
# leader is: IN_SYSTEM, still in its system calls without the GIL; OUT_OF_SYSTEM, and so
# stopped between two steps; or HAS_GIL, stopped in the middle of anything.

import sys
from importlib import import_module

cdef enum:
    SLICE_US = 100_000       # how long a follower sleeps before it tries the mutex
    AWAIT_US = 1_000         # the same where no thread will wake it
    PATIENCE_US = 20_000     # the same while wake-ups are under way
    TOGETHER = 24            # followers: so many wake the leader between wake-ups

cdef enum:
    LEADER_HAS_GIL = 0           # with the GIL, or stopped where it gave it away
    LEADER_IN_SYSTEM = 1         # set with the GIL, before it is given away
    LEADER_OUT_OF_SYSTEM = 2     # set without it, after all else
    LEADER_IN_SYSTEM_NS = 1_500_000_000      # more than a poll without a waker

cdef enum:
    FOLLOWER_RUN = 0         # a round or a batch, until it is finished
    FOLLOWER_WITHDRAW = 1    # one that its caller gave up; no thread waits
    FOLLOWER_CLOSE = 2       # the engine
    FOLLOWER_END = 3         # what is idle or deferred: the interpreter ends


@cython.final
@cython.internal
cdef class Leadership:
    """The threads that share one engine."""

    cdef int mutex                      # 1: free. Never waited for, so an atomic flag
    cdef unsigned long owner            # thread that holds it...
    cdef size_t greenlet                # ...its greenlet, or 0 (greenlet_hub)...
    cdef object leader                  # ...of which this is a weak reference, or None
    cdef object leading                 # its work
    cdef int depth                      # ...and how often
    cdef int leader_at
    cdef Waker waker
    cdef list followers                 # queued, not yet taken
    cdef list waiting                   # all with a thread in blocking_follow
    cdef list closing                   # whose close() has begun, and not ended
    cdef Follower elected               # woken to lead next, not yet awake
    cdef list finished                  # done, their threads not yet woken
    cdef int wakeups                    # under way, not yet awake; less if one is late
    cdef int64_t woken_at_ns            # the last of these

    def __cinit__(self):
        self.waker.event.fd = -1
        leader_reset(self)

    def __dealloc__(self):
        event_close(&self.waker.event)


@cython.final
@cython.internal
cdef class Follower:
    """A thread's work for the leader."""

    cdef Leadership leadership
    cdef object work                    # a Round, a Batch, or None
    cdef int asks
    cdef bint is_done
    cdef bint is_waiting                # asleep: not leading, in no signal handler
    cdef bint is_waking                 # woken because it is done, not yet awake
    cdef bint is_elected                # to lead, and it has not led since
    cdef bint is_posted                 # the lock is free: a free one is not freed
    cdef int64_t timeout_ns
    cdef object drain              # of the commands it causes, once it was taken
    cdef PyThread_type_lock lock        # free once there is a reason to wake
    cdef object green                   # a weak reference to its greenlet, or None...
    cdef Event event                    # ...which waits in the hub for this, if open

    def __cinit__(self, Leadership leadership not None, int asks, object work):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError
        PyThread_acquire_lock(self.lock, NOWAIT_LOCK)
        self.leadership = leadership
        self.asks = asks
        self.work = work
        self.event.fd = -1
        self.green = greenlet_reference(greenlet_hub_caller())
        if self.green is not None:
            event_open(&self.event)

    def __dealloc__(self):
        if self.lock != NULL:      # else no event, either
            PyThread_free_lock(self.lock)
            event_close(&self.event)


# --- follower -------------------------------------------------------------------------
# The lock, or the event, on which it waits.

cdef enum:
    BLIND_US = 10_000        # a slice of a greenlet that cannot be woken


cdef void follower_wake(Follower self) noexcept:
    if self.is_posted:
        return
    self.is_posted = True
    if self.green is None:
        PyThread_release_lock(self.lock)
    elif self.event.fd >= 0:
        event_set(&self.event)


cdef bint follower_wait(Follower self, int64_t slice_us) except -1:
    # Wait to be woken, or for the end of a slice; True where it was not woken: a signal
    # may have come, also just before this, or to another thread. The reason for a
    # wake-up is written before it, and read after this.
    cdef int outcome
    if self.green is None:
        with nogil:
            outcome = <int>PyThread_acquire_lock_timed(self.lock, slice_us, 1)
        if outcome == PY_LOCK_ACQUIRED:
            self.is_posted = False
        return outcome != PY_LOCK_ACQUIRED
    if self.event.fd < 0:      # no descriptor was left
        greenlet_hub_wait([], [], 1000 * min(slice_us, <int64_t>BLIND_US))
    else:
        greenlet_hub_wait([self.event.fd], [], 1000 * slice_us)
        if event_clear(&self.event):
            self.is_posted = False
    return False


cdef int follower_forget(list followers, Follower follower) except -1:
    if follower in followers:
        followers.remove(follower)


# --- wakeups --------------------------------------------------------------------------
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


cdef bint wakeups_are_under_way(Leadership self) noexcept:
    return self.wakeups > 0 and clock_ns() - self.woken_at_ns < STUCK_NS


cdef int wakeups_add(Leadership self, Follower follower) except -1:
    follower.is_done = True
    if follower.is_waiting:
        self.finished.append(follower)
    return wakeups_wake_next(self)


cdef int wakeups_wake_next(Leadership self) except -1:
    cdef Follower follower
    if not wakeups_are_under_way(self):
        self.wakeups = 0
    while self.finished and self.wakeups < AT_ONCE:
        follower = <Follower>self.finished.pop(0)
        follower.is_waking = True
        self.wakeups += 1
        self.woken_at_ns = clock_ns()
        follower_wake(follower)


# --- leader ---------------------------------------------------------------------------
# Who has the mutex, and who gets it next: a leader that leaves elects a follower.


cdef int leader_reset(Leadership self) except -1:
    # Begin anew, alone. After a fork the mutex may be held by a thread that does not
    # exist here. Where this thread holds it (it forked inside a step) it still does, as
    # often: its outer frames give it back.
    if not leader_is_caller(self):
        self.depth = 0
        atomic_give(&self.mutex)
    self.leader_at = LEADER_HAS_GIL
    self.followers = []
    self.waiting = []
    self.closing = []
    self.elected = None
    self.finished = []
    self.wakeups = 0
    waker_close(&self.waker)
    self.waker.has_followers = 0


cdef bint leader_is_caller(Leadership self) noexcept:
    # A signal handler may take a lock between two passes.
    if self.depth == 0 or self.owner != PyThread_get_thread_ident():
        return False
    return self.greenlet == 0 or (
        greenlet_hub_caller() in (0, self.greenlet)
        and not greenlet_is_over(self.leader)      # a thread's identity is used again
    )


cdef bint leader_was_stopped(Leadership self) noexcept:
    # The interpreter ends, and another thread holds the mutex: it will never give it
    # back. False where it is still at its system calls after all this time.
    cdef int64_t stop_ns = clock_ns() + LEADER_IN_SYSTEM_NS
    while atomic_get(&self.leader_at) == LEADER_IN_SYSTEM:
        if clock_ns() > stop_ns:
            return False
        self.waker.has_followers = 1
        waker_wake(&self.waker)
        sleep_ns(100_000)
    return True


cdef bint leader_try_enter(Leadership self) noexcept:
    # Where gevent is loaded and has patched nothing, the hub's answer is a function of
    # Python: a signal handler that ran in it, with the mutex taken and no depth yet,
    # would wait for its own thread.
    cdef size_t greenlet = greenlet_hub_caller()
    leader = greenlet_reference(greenlet)
    if atomic_take(&self.mutex) == 0:
        return False
    self.owner = PyThread_get_thread_ident()
    self.greenlet = greenlet
    self.leader = leader
    self.depth = 1
    return True


cdef int leader_leave(Leadership self) except -1:
    self.depth -= 1
    if self.depth == 0:
        atomic_give(&self.mutex)
        if self.waiting and not wakeups_are_under_way(self):
            leader_elect(self)      # else the last wake-up does
    elif self.greenlet != 0:      # the outer step may wait in the hub for this work
        self.waker.is_sleeping = 1
        waker_wake(&self.waker)


cdef int leader_elect(Leadership self) except -1:
    # One whose round is not finished; one that sleeps rather than one that may be long
    # in a signal handler.
    cdef Follower follower, chosen = None
    if self.elected is None or greenlet_is_over(self.elected.green):
        self.elected = None
        for follower in self.waiting:
            if not (follower.is_done or greenlet_is_over(follower.green)) and (
                chosen is None or follower.is_waiting
            ):
                chosen = follower
                if follower.is_waiting:
                    break
        if chosen is not None:
            self.elected = chosen
            follower_wake(chosen)


cdef int leader_ensure(Leadership self) except -1:
    # Make sure that a thread leads, and knows of the followers.
    if self.depth == 0:
        return leader_elect(self)
    if self.waker.has_followers:
        waker_wake(&self.waker)


cdef int leader_add_follower(Leadership self, Follower follower) except -1:
    # Queue a follower, and make sure that the leader sees it before it sleeps on. Where
    # more are about to come, the last of them does.
    self.followers.append(follower)
    self.waker.has_followers = 1
    if wakeups_are_under_way(self) and (
        follower.asks == FOLLOWER_RUN and len(self.followers) % TOGETHER != 0
    ):
        return 0
    return leader_ensure(self)


cdef int leader_await(Leadership self, Follower follower, int64_t slice_us) except -1:
    # Sleep until a wake-up or the end of a slice. An elected follower that finds a
    # leader sleeps again; that leader elects the next one.
    cdef bint may_be_signal
    if follower.is_done:
        return 0
    follower.is_waiting = True
    may_be_signal = follower_wait(follower, slice_us)
    leader_after_wake(self, follower)
    if may_be_signal:
        PyErr_CheckSignals()


cdef int leader_after_wake(Leadership self, Follower follower) except -1:
    # A thread is awake, for whatever reason. If it was elected it is to lead. If it was
    # woken because it is done it wakes the next one; the last one ensures a leader.
    if self.elected is follower:
        self.elected = None
        follower.is_elected = True
    if not follower.is_waking:
        if follower.is_done and follower.is_waiting:
            follower_forget(self.finished, follower)
        follower.is_waiting = False
        return 0
    follower.is_waking = follower.is_waiting = False
    self.wakeups = max(0, self.wakeups - 1)
    wakeups_wake_next(self)
    return 0 if wakeups_are_under_way(self) else leader_ensure(self)


cdef int leader_remove_follower(Leadership self, Follower follower) except -1:
    # A follower leaves. If it was elected another one is, also where it woke for its
    # own round, which had been finished meanwhile.
    follower_forget(self.waiting, follower)
    follower_forget(self.followers, follower)
    leader_after_wake(self, follower)
    return leader_ensure(self) if follower.is_elected else 0


cdef bint waiter_is_over(object waiter) except -1:
    # Return whether its greenlet never goes on; then it follows no longer.
    cdef Follower follower
    if type(waiter) is not Follower:
        return False
    follower = <Follower>waiter
    if not greenlet_is_over(follower.green):
        return False
    follower_forget(follower.leadership.waiting, follower)
    return True


cdef int waiter_wake(object waiter) except -1:
    # A thread's Follower, or a task's RoundFuture; None: no caller waits.
    if waiter is None:
        return 0
    if type(waiter) is Follower:
        wakeups_add((<Follower>waiter).leadership, <Follower>waiter)
    else:
        future_set_done(<RoundFuture?>waiter)


# --- greenlets ------------------------------------------------------------------------
# Waiting where gevent has patched the program: through the thread's hub. One that
# eventlet has patched is refused (`refuse_eventlet`): nothing here would tell its
# greenlets apart, or let them run.
#
# There, many greenlets share one native thread, and a system call that sleeps freezes
# them all. So a greenlet never sleeps in the kernel: it looks at its descriptors
# without waiting, and lets the hub watch them while other greenlets run. Greenlets lead
# and follow as threads do (leader), each under its own identity: a greenlet
# that calls while another one of its thread leads is a follower. (By the thread's
# identity it would seem to be a signal handler inside the leader's step, and leave in
# the wrong order.)
#
# The hub's own greenlet (its callbacks, and a signal handler or a finalizer that runs
# in it) cannot wait through itself. It sleeps in the kernel, and takes its step inside
# that of a leader of its thread, which is suspended meanwhile. A thread without a hub
# sleeps in the kernel, too: there is no other greenlet in it.
#
# The core depends on neither library: it looks for them among the modules that the
# program has loaded.


@cython.final
@cython.internal
cdef class GreenletHub:
    """The library that has patched this program."""

    cdef object current          # () -> the greenlet that runs
    cdef object find             # () -> the hub's greenlet in this thread, or None
    cdef object wait             # (fds to read, fds to write, seconds) -> any is ready


cdef dict modules = sys.modules
cdef GreenletHub patching = None         # found once: a patch is never undone
cdef Py_ssize_t bare_size = -1           # of `modules`, when it was not among them


cdef size_t greenlet_hub_caller() noexcept:
    # The identity of the greenlet that calls; 0 where it has to sleep in the kernel.
    global patching, bare_size
    if patching is None and len(modules) != bare_size:
        # A library that is loaded, or just being loaded, may not have patched anything.
        if is_patched(modules.get("gevent.monkey"), "is_module_patched"):
            patching = greenlet_hub_of_gevent()
        elif "gevent.monkey" not in modules:
            bare_size = len(modules)
    if patching is None:
        return 0
    hub = patching.find()
    current = patching.current()
    return 0 if hub is None or current is hub else <size_t><void *>current


cdef object greenlet_reference(size_t greenlet):
    return None if greenlet == 0 else PyWeakref_NewRef(<object><void *>greenlet, None)


cdef bint greenlet_is_over(object reference) except -1:
    # Return whether it never goes on, and has not unwound: its thread has ended (a
    # pool's), or its hub was destroyed. None: a thread without greenlets.
    if reference is None:
        return False
    greenlet = reference()
    if greenlet is None or greenlet.dead:
        return True
    hub = greenlet.parent
    return hub is not None and getattr(hub, "loop", hub) is None


cdef bint is_patched(object library, str name) except -1:
    has = getattr(library, name, None)
    return has is not None and (has("socket") or has("select"))


def refuse_eventlet():
    """Raise RuntimeError in a program that eventlet has patched."""
    if "eventlet.patcher" in modules and is_patched(
        modules["eventlet.patcher"], "is_monkey_patched"
    ):
        raise RuntimeError(
            "fastredlock does not run where eventlet has patched the program: use "
            "gevent, or asyncio with fastredlock.asyncio"
        )


cdef GreenletHub greenlet_hub_of_gevent():
    poll = import_module("gevent.select").poll

    def wait(readable, writable, seconds):
        # Not its select(), which asks the system's select(2) first: up to 1024.
        poller = poll()
        for fd in readable:
            poller.register(fd, POLLIN)
        for fd in writable:
            poller.register(fd, POLLIN | POLLOUT)
        poller.poll(seconds * 1000)

    cdef GreenletHub self = GreenletHub()
    self.current = import_module("greenlet").getcurrent
    self.find = import_module("gevent._hub_local").get_hub_if_exists
    self.wait = wait
    return self


cdef int greenlet_hub_wait(list readable, list writable, int64_t wait_ns) except -1:
    """Let other greenlets run until one of these is ready, or for so long.

    Raises what is thrown into the greenlet, and OSError in a forked child, which has a
    copy of the greenlet: what it waits for is its parent's.
    """
    cdef uint32_t generation = current_generation
    patching.wait(readable, writable, wait_ns / 1e9)
    if generation != current_generation:
        raise OSError(ECANCELED, "forked while this call waited")
