# The blocking driver: each caller runs its round as the leader, or as a follower.


def blocking_run(Engine engine not None, work not None):
    """Run a round until it is closed; a lost one is rolled back before this returns.

    Or a batch of them. Blocks, with the GIL released, for connections where a quorum of
    them is missing (as long as `round.left_ns` allows), then up to the round's timeout.
    An exception of a signal handler rolls all back and goes on. Returns how many
    lines the engine has for the log.
    """
    return blocking_run_work(engine, work)


cdef Py_ssize_t blocking_run_work(Engine engine, object work) except -1:
    work_check(work)
    engine_check_fork(engine)
    if is_exiting or watched_in != current_generation:
        interpreter_exit_check(work)
    try:
        if engine_may_need_no_master(engine, work) and (
            engine_hand_on(engine, work, clock_ns())
        ):
            return len(engine.counters.unlogged)
        if (
            not wakeups_are_under_way(engine.leadership.wakeups)
            or leader_is_caller(engine.leadership)
        ) and blocking_try_enter(engine):
            blocking_lead(engine, work)
        if not work_is_finished(work):
            blocking_follow(engine, work)
        if work_has_validity(work) and work_expired_before_return(work, clock_ns()):
            blocking_abandon(engine, work)
    except BaseException:
        blocking_abandon(engine, work)
        raise
    if is_exiting:      # no later call would read the replies still in flight
        blocking_settle(engine, work)
        interpreter_exit_check(work)
    return len(engine.counters.unlogged)


def blocking_abandon(Engine engine not None, work not None):
    """Roll back a round, or a batch, whose caller will not get it; releases are sent.

    Blocks until the masters that answer have answered (a second at most), or a process
    that ends now would take back what it has sent. What a batch has to undo may be more
    than the sockets take. Inside a step of the same thread (a signal handler or a
    finalizer) it does not wait for replies.
    """
    cdef Follower follower
    work_check(work)
    engine_check_fork(engine)
    if blocking_try_enter(engine):
        try:
            engine_withdraw_work(engine, work, clock_ns())
            engine_drain(engine)
            engine_settle_undo(engine, work)
        finally:
            blocking_leave(engine)
    else:
        follower = Follower(engine.leadership, FOLLOWER_WITHDRAW, work)
        leader_add_follower(engine.leadership, follower)
        blocking_serve(engine)
        blocking_await_settled(engine, follower, clock_ns() + UNDO_NS)


def blocking_close(Engine engine not None, int64_t timeout_ns):
    """Close all connections; wait up to timeout_ns for the releases in flight.

    Rounds of other threads that are under way end UNREACHABLE, "closed".
    """
    cdef Leadership leadership = engine.leadership
    cdef Follower follower
    engine_check_fork(engine)
    if blocking_try_enter(engine):
        try:
            engine_shut_down(engine, timeout_ns)
        finally:
            blocking_leave(engine)
        return
    follower = Follower(leadership, FOLLOWER_CLOSE, None)
    follower.timeout_ns = timeout_ns
    leadership.waiting.append(follower)
    try:
        leader_add_follower(leadership, follower)
        while not follower.is_done:
            if not blocking_try_enter(engine):
                leader_await(leadership, follower, SLICE_US)
                continue
            try:
                blocking_take_followers(engine)
            finally:
                blocking_leave(engine)
    finally:
        leader_remove_follower(leadership, follower)


cdef int blocking_settle(Engine self, object work) except -1:
    if blocking_try_enter(self):
        try:
            engine_settle_undo(self, work)
        finally:
            blocking_leave(self)
    return 0
