# The end of the interpreter: the commands in flight of all engines of this process are
# waited for, or the servers drop those that they have not executed when our sockets go.
#
# Each engine is known here by a weak reference. The hook is an atexit function, which
# runs after all threads but daemons have ended; a child of multiprocessing ends by
# os._exit() and runs finalizers of its own before that, and threads may still work
# then: so it only reads replies in flight, and each later call reads its own.
# After os._exit() and SIGKILL nothing of ours runs.


import sys

cdef enum:
    EXIT_NS = 1_000_000_000      # for all engines together, as long as replies come in
    AWAKE_NS = 100_000_000       # by then a thread whose round is finished goes on
    IN_USE_NS = 25_000_000       # ...and one that has a key which rested

cdef set engines = set()         # weak references
cdef uint32_t watched_in = <uint32_t>-1      # the process whose end is watched
cdef bint is_exiting = False     # the interpreter is about to end...
cdef unsigned long exiting_thread = 0    # ...in this one; the others are daemons


cdef int interpreter_exit_watch(Engine engine) except -1:
    # In a forked child from its next call on: interpreter_exit_check.
    engines.add(PyWeakref_NewRef(engine, engines.discard))
    return interpreter_exit_hook() if watched_in != current_generation else 0


cdef int interpreter_exit_hook() except -1:
    global watched_in, is_exiting, exiting_thread
    import atexit

    # Another thread may be importing it at this moment: the next engine sees it whole.
    util = sys.modules.get("multiprocessing.util")
    finalize = getattr(util, "Finalize", None)
    is_exiting = interpreter_exit_has_begun()
    exiting_thread = 0
    atexit.unregister(interpreter_exit_end)     # the parent's, where it was not cleared
    atexit.register(interpreter_exit_end)
    if finalize is not None:      # the last of its finalizers
        finalize(None, interpreter_exit_drain, exitpriority=-100)
    if util is None or finalize is not None:
        watched_in = current_generation
    return 0


cdef bint interpreter_exit_has_begun() except -1:
    # An atexit function may make the first engine: none that it registers is called.
    # All other threads but daemons have ended by then, and the main one counts as that.
    main_thread = getattr(sys.modules.get("threading"), "main_thread", None)
    return main_thread is not None and not main_thread().is_alive()


cdef int interpreter_exit_check(object work) except -1:
    # A daemon thread would be stopped in the middle of what it begins, and nobody can
    # use what was ended for it. As the interpreter does a moment later, this ends it
    # without a word; but its `finally` blocks run, and who joins it at exit goes on.
    if watched_in != current_generation:
        interpreter_exit_hook()
    if (
        exiting_thread != 0 and exiting_thread != PyThread_get_thread_ident()
        and not work_is_release(work)
        and (not work_is_finished(work) or work_is_unreachable(work))
    ):
        raise SystemExit
    return 0


def interpreter_exit_drain():
    """Read the replies in flight: this process is about to end."""
    global is_exiting
    cdef list alive = interpreter_exit_engines()
    is_exiting = True
    interpreter_exit_settle(alive, False)


def interpreter_exit_end():
    """End the acquires under way, which are daemon threads', and read the replies."""
    global is_exiting, exiting_thread
    cdef list alive = interpreter_exit_engines()
    is_exiting = True
    exiting_thread = PyThread_get_thread_ident()
    interpreter_exit_settle(alive, True)


cdef list interpreter_exit_engines():
    # Held before `is_exiting` is set: the thread that watches keys at rest may be all
    # that holds an engine, and ends by that.
    cdef Engine engine
    cdef list alive = []
    for reference in list(engines):
        engine = reference()
        if engine is not None and engine.generation == current_generation:
            alive.append(engine)
    return alive


cdef int interpreter_exit_settle(list alive, bint is_last) except -1:
    cdef int64_t until_ns = clock_ns() + EXIT_NS
    cdef Engine engine
    for engine in alive:
        interpreter_exit_settle_one(engine, is_last, until_ns)
    return 0


cdef void interpreter_exit_settle_one(
    Engine self, bint is_last, int64_t until_ns
) noexcept:
    # What it raises is printed: it is no reason to leave the other engines as they are.
    if self.driver is None:
        interpreter_exit_settle_engine(self, is_last, until_ns)
    else:
        interpreter_exit_settle_awaitable(self, is_last, until_ns)


cdef int interpreter_exit_settle_engine(
    Engine self, bint is_last, int64_t until_ns
) except -1:
    cdef Follower follower = Follower(self.leadership, FOLLOWER_END, None)
    cdef bint is_in_use = interpreter_exit_rest_is_in_use(self), is_opening = False
    while not is_last and clock_ns() < until_ns:
        if blocking_try_enter(self):
            try:
                engine_end_rests(self, clock_ns())
                is_opening = engine_open_deferred_at_end(self, clock_ns())
            finally:
                blocking_leave(self)
            break
        if not self.rests:      # a leader opens what is due by itself
            break
        sleep_ns(NS_PER_MS)      # the thread that watches, for a moment
    if not (is_last or is_opening or engine_awaits_replies(self)):
        return 0
    follower.timeout_ns = max(<int64_t>0, until_ns - clock_ns())
    if is_last:
        leader_add_follower(self.leadership, follower)
    blocking_await_settled(self, follower, until_ns)
    # One that has just got a lease, without a command in flight, releases it by now.
    until_ns = min(until_ns, clock_ns() + AWAKE_NS)
    while is_last and self.leadership.waiting and clock_ns() < until_ns:
        sleep_ns(NS_PER_MS)
    if is_last and is_in_use:
        sleep_ns(max(<int64_t>0, min(<int64_t>IN_USE_NS, until_ns - clock_ns())))
    return blocking_await_settled(self, follower, until_ns + AWAKE_NS)


cdef bint interpreter_exit_rest_is_in_use(Engine self) noexcept:
    # Whether a daemon thread may have a key that rested: it got it without a command,
    # so there is none in flight to wait for.
    for rest in self.rests.values():
        if not (<Rest>rest).is_at_rest:
            return True
    return False


cdef int interpreter_exit_settle_awaitable(
    Engine self, bint is_last, int64_t until_ns
) except -1:
    # Its loop may run in a daemon thread, and does the reading then.
    cdef AsyncioDriver driver = self.driver
    cdef Settlement settlement
    cdef int64_t awake_ns
    if driver.loop.is_running():
        if is_last:
            driver.loop.call_soon_threadsafe(driver.end_with_interpreter)
            awake_ns = min(until_ns, clock_ns() + AWAKE_NS)
            while driver.ending < ENDING_PASSES and clock_ns() < awake_ns:
                sleep_ns(NS_PER_MS // 4)
        settlement = settlement_of_running(self, until_ns)
        while engine_limit_ns(self, settlement, clock_ns()) > 0:
            sleep_ns(NS_PER_MS)
        return 0
    driver.end_acquires()
    return engine_settle_all(self, until_ns)


def end_with_parent(int signal):
    """Let this process get a signal when its parent ends; False: not on this system.

    Of the thread that forked it, where that ends first. It outlasts exec.
    """
    return end_with_parent_by(signal) == 0
