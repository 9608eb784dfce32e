# The followers' work, taken by the leader in its step.


cdef int blocking_take_followers(Engine self) except -1:
    cdef list followers
    if not self.leadership.waker.has_followers:
        return 0
    followers = leader_take_followers(self.leadership)
    followers.reverse()
    try:
        while followers:      # one whose work is not taken is taken by the next leader
            blocking_take_follower(self, <Follower>followers[-1])
            followers.pop()
    finally:
        followers.reverse()
        leader_put_back(self.leadership, followers)
    return 0


cdef int blocking_take_follower(Engine self, Follower follower) except -1:
    if follower.kind == FOLLOWER_CLOSE and not self.is_closed:
        self.leadership.closing.append(follower)
        engine_begin_close(self)
    elif follower.kind == FOLLOWER_WITHDRAW:
        engine_withdraw_work(self, follower.work, clock_ns())
        engine_open_deferred(self, clock_ns())
        follower.settlement = settlement_of(
            self, False, engine_quiet_ns(self, work_timeout_ns(follower.work)),
            clock_ns() + UNDO_NS,
        )
    elif follower.kind == FOLLOWER_END:
        engine_end_acquires(self, "the interpreter ends", clock_ns())
        follower.settlement = settlement_of(
            self, True, engine_quiet_ns(self, QUIET_NS),
            clock_ns() + follower.timeout_ns,
        )
    elif self.is_closed and (
        follower.kind == FOLLOWER_CLOSE or not work_is_release(follower.work)
    ):
        wakeups_add(self.leadership.wakeups, follower)
    elif not work_is_submitted(follower.work):
        engine_submit_work(self, follower.work, follower, clock_ns())
    return 0
