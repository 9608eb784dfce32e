# The turn of a round that waits in the queue of its resource. Pure.
#
# A round with a Turn is not opened when it is submitted, but when it is its turn, or at
# the end of its caller's time: a last try, as any acquire makes one. Then it is a round
# like all others, but for the script that it sends to the gate of the queue: that one
# refuses where somebody waits longer, and this refusal is a veto, for the other masters
# know nothing of the queue. A silent gate refuses nothing.

cdef enum:                   # the replies of take_turn
    GATE_SILENT = -1
    GATE_TAKEN = 0           # the key exists
    GATE_SET = 1
    GATE_REFUSED = 2         # somebody waits longer
    GATE_SET_FIRST = 3       # set, and our next caller waits longest of all
    GATE_MOVED = 4           # the key exists; 5: it is set. The queue is elsewhere


@cython.final
@cython.internal
@cython.freelist(64)
cdef class Turn:
    """The place of one round in the queue of its resource."""

    cdef int64_t since_ns        # when its caller began to wait
    cdef int64_t until_ns        # when it tries a last time; NEVER_NS: it has no limit
    cdef int64_t pause_ns        # before this try, where the last ones were lost; or 0
    cdef WaitQueue queue         # None before it is submitted
    cdef int64_t number          # its own, and that of the next of the queue when it
    cdef int64_t next_number     # was opened; 0: none. (A reference would make a chain
    #                              of all rounds to come, kept by a lease that is kept.)
    cdef tuple arguments         # of its script at the gate
    cdef list asked              # (queue, number): of several, by one question
    cdef int gate_reply
    cdef bint is_open            # its round is, or was
    cdef bint is_kept            # from the last round of its caller: no need to ask
    cdef bint is_probe           # opened because it was time, not because of a turn
    cdef bint is_notified        # its gate notified us: before, or meanwhile
    cdef bint has_waited         # its caller has, in an earlier round: counted once


cdef Turn turn_new(
    int64_t since_ns, bint is_kept, int64_t until_ns=-1, bint has_waited=False,
    int64_t pause_ns=0,
):
    cdef Turn self = Turn.__new__(Turn)
    self.since_ns = since_ns
    self.until_ns = NEVER_NS if until_ns < 0 else until_ns
    self.gate_reply = GATE_SILENT
    self.is_kept = is_kept or pause_ns > 0
    self.pause_ns = pause_ns
    self.has_waited = has_waited
    return self


cdef bint turn_is_kept(Turn self, Round round) noexcept:
    # Whether the gate had set the key of a round that was lost elsewhere.
    return round.verdict_code == VERDICT_TAKEN and (
        self.gate_reply == GATE_SET or self.gate_reply == GATE_SET_FIRST
    )


cdef bint turn_is_paused(Turn self) noexcept:
    # Whether it waits for a while, or for a release, and is given no turn by its gate.
    return self.is_kept and self.pause_ns > 0


cdef bint turn_is_behind(Turn self) noexcept:
    # Whether its gate had refused: the key was there, or another waited longer.
    return self.gate_reply == GATE_TAKEN or self.gate_reply == GATE_REFUSED


cdef void turn_spend(
    Turn self, Round round, int64_t round_trip_ns, int64_t now_ns
) noexcept:
    # The wait is part of the caller's time; the round keeps that of a last one.
    if self.until_ns != NEVER_NS:
        round.left_ns = max(
            self.until_ns - now_ns, round.terms.last_round_ns(round_trip_ns)
        )


cdef bytes turn_waited_us(int64_t since_ns, int64_t now_ns):
    # For how long a caller has waited, as an argument of a script.
    return decimal_bytes(max(<int64_t>0, (now_ns - since_ns) // 1000))


cdef int turn_set_arguments(
    Turn self, Round round, Round next, bytes waiter, int64_t now_ns
) except -1:
    # Those of take_turn behind the token. The next of the queue takes our place there.
    self.arguments = (
        decimal_bytes(round.terms.ttl_ms if round.terms.has_expiry else 0),
        waiter,
        turn_waited_us(self.since_ns, now_ns),
        b"-1" if next is None else turn_waited_us((<Turn>next.turn).since_ns, now_ns),
    )
    if round.permits:
        self.arguments += (decimal_bytes(round.permits),)
    return 0


cdef void round_on_gate_reply(Round self, int reply) noexcept:
    # What the gate replies beside its vote; it may come after the verdict.
    cdef Turn turn
    if self.turn is not None:
        turn = <Turn>self.turn
        turn.gate_reply = reply
        if reply == GATE_SET_FIRST and turn.queue is not None:
            wait_queue_on_first(turn.queue, turn.next_number)


cdef bint round_is_refused(Round self) noexcept:
    # Whether the gate has refused it: somebody waits longer.
    return self.turn is not None and (<Turn>self.turn).gate_reply == GATE_REFUSED


cdef inline int round_quorum(Round self) noexcept:
    # Of the configured masters.
    return self.master_count // 2 + 1
