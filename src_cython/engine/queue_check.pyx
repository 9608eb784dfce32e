# Whether anybody waits for what was just released natively at its gate.
#
# The script of the gate deletes the key and notifies the next in one step. A native
# command costs the server half of it, and mostly nobody waits: so where this client
# knows of nobody, the gate is asked by EXISTS, behind the native command and in the
# same write, whether there is a queue. There is: the script follows, and does what it
# would have done. Whoever enters the queue after the answer finds the key gone.
#
# Who releases may read nothing for hours afterwards. So a release that a quorum has
# confirmed is finished when this answer is in as well, or after twice as long again as
# it took, 1 to 10 ms: the replies of one write come together, and those of many callers
# behind each other. After that the script is sent without an answer.
# A gate that is behind the quorum again and again is not asked in this way for a while.
#
# A release that had to be repeated is held in the same way (engine_held_ns).

cdef enum:
    QUEUE_CHECK_LEAST_NS = 1_000_000
    QUEUE_CHECK_MOST_NS = 10_000_000


cdef bint engine_may_queue_check(Engine self, Round release, int64_t now_ns) except -1:
    # Whether a release may go natively to its gate: nobody waits, as far as is known,
    # and its answer will be read (not so inside of another step).
    cdef Master gate
    if (
        release.gate < 0 or not native_replaces(release, self.scripts)
        or self.token_uses is not None or release.our_entry == OUR_ENTRY_STAYS
        or self.leadership.depth > 1
    ):
        return False
    gate = <Master>self.masters[release.gate]
    return (
        gate.native != FORM_SCRIPT and now_ns >= gate.queue_check_from_ns
        and not wait_queues_are_until(
            self.queues.contended_ns, round_queue(release), now_ns
        )
    )


cdef inline bint engine_gathers_queue_checks(Engine self, Round release) noexcept:
    # Whether others will be released in the same write.
    return self.driver is not None or type(release.waiter) is Batch or (
        self.gathers_by_hand
    )


cdef int engine_send_queue_checks(Engine self, int64_t now_ns) except -1:
    # Those that were gathered, before their bytes are written.
    cdef Master master
    self.queue_check_gathered = False
    for master in self.masters:
        master_send_queue_checks(master, now_ns)
    return 0


cdef bint engine_hold(Engine self, Round release, int64_t now_ns) except -1:
    # It has its verdict. Is there more to read, before its caller goes?
    cdef int64_t until_ns = engine_held_ns(self, release)
    if now_ns >= until_ns:
        return False
    self.queue_check_pending.append(release)
    engine_note_time(self, until_ns)
    return True


cdef int64_t engine_held_ns(Engine self, Round release) except -1:
    # A release that was repeated at one master, which did not know its script, or whose
    # connection was cut: the others will hardly be better off, and to a master that is
    # not read nothing is sent again. They have twice as long again as the quorum, so
    # a frozen one keeps nobody waiting; one that connects again, as long as the round.
    # A close() waits for the replies itself, and behind it none will come.
    cdef Master master
    if self.is_closed:
        return 0
    if release.is_repeated and release.counts[VOTE_PENDING] > 0:
        for master in self.masters:
            if release in master.in_flight.unanswered:
                return release.deadline_ns
        return min(release.closed_ns + twice_again_ns(release), release.deadline_ns)
    if release.queue_check == QUEUE_CHECK_ASKED:
        return queue_check_until_ns(release)
    return 0


cdef inline int64_t queue_check_until_ns(Round release) noexcept:
    return release.closed_ns + min(
        twice_again_ns(release), <int64_t>QUEUE_CHECK_MOST_NS
    )


cdef inline int64_t twice_again_ns(Round release) noexcept:
    return max(
        2 * (release.closed_ns - release.opened_ns), <int64_t>QUEUE_CHECK_LEAST_NS
    )


cdef int engine_take_queue_checked(Engine self, int64_t now_ns) except -1:
    # Let those end whose masters have answered, or take too long.
    cdef Round release
    cdef Master gate
    empty = []
    held, self.queue_check_pending = self.queue_check_pending, empty
    for release in held:
        if engine_hold(self, release, now_ns):
            continue
        self.closed.append(release)
        if release.queue_check == QUEUE_CHECK_ASKED:
            gate = <Master>self.masters[release.gate]
            master_note_queue_check(gate, release, now_ns)
            engine_notify_late(self, release, gate, now_ns)
    return 0


cdef int64_t engine_queue_check_next_ns(Engine self) except -1:
    cdef Round release
    cdef int64_t next_ns = NEVER_NS
    for release in self.queue_check_pending:
        next_ns = min(next_ns, engine_held_ns(self, release))
    return next_ns


cdef int engine_take_queues_found(Engine self, Master gate, int64_t now_ns) except -1:
    # Somebody waits: so the next releases of the same go by the script at once.
    cdef Round release
    empty = []
    found, gate.queues_found = gate.queues_found, empty
    for release in found:
        wait_queues_remember(
            self.queues.contended_ns, round_queue(release), now_ns + CONTENDED_NS
        )
        engine_notify_late(self, release, gate, now_ns)
    return 0


cdef int engine_notify_late(
    Engine self, Round release, Master gate, int64_t now_ns
) except -1:
    # Send the script behind a native release. Nobody waits for its reply: so by its
    # source.
    cdef Round notifying
    release.queue_check = QUEUE_CHECK_NONE
    if gate.state_code != MASTER_READY:
        return 0
    notifying = engine_new_release(self, release, release.terms)
    engine_notify_at_gate(self, notifying, now_ns)
    notifying.queue_check = QUEUE_CHECK_NOTIFYING
    self.is_notifying = True
    notifying.gate = gate.index
    notifying.may_hold = <uint64_t>1 << gate.index
    return engine_queue(self, notifying, notifying.may_hold, True, now_ns)
