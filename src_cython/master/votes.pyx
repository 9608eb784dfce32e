# A reply that becomes the vote of a round, and what is learnt from it.

cdef int64_t REFUSED_NS = 10_000_000_000


cdef int master_on_definite(
    Master self, InFlightEntry entry, Round round, int vote, object detail,
    int64_t now_ns
) except -1:
    # What failed in an open round is counted when that ends (engine_count_failures).
    if operation_is(round.operation_code, OPERATION_HAS_VOTES) and (
        round.queue_check != QUEUE_CHECK_NOTIFYING
        and (vote != VOTE_FAILED or round.is_finished)
    ):
        self.votes[vote] += 1
    if vote == VOTE_FAILED:
        if type(detail) is str:
            master_note_refusal(self, entry, round, detail, now_ns)
    elif self.refused_until_ns and (
        round.operation_code == OPERATION_ACQUIRE
        or round.operation_code == OPERATION_PING
    ):
        self.refused_until_ns = 0
    round_on_vote(round, self.index, vote, detail, True, now_ns)
    if entry.is_second and operation_is(round.operation_code, OPERATION_GIVES_TTL):
        # The command on the first connection has been executed, or may still be: an
        # answer to the second, an error too, proves nothing about it.
        round_on_sent(round, self.index)
    elif entry.fence:      # nor one to a further command, about the SET
        round_on_sent(round, self.index)
    return 0


cdef int master_note_refusal(
    Master self, InFlightEntry entry, Round round, str text, int64_t now_ns
) except -1:
    # What a write finds is what health() is to show, until another one is answered, and
    # not for long: a client without work has to become ready again. A right to one key,
    # or to a script of queues, is no matter of the master's.
    if (
        round.operation_code == OPERATION_ACQUIRE
        or round.operation_code == OPERATION_PING
    ) and "WRONGTYPE" not in text and (
        text_is_of_state(text) or not entry.is_at_gate and text_is_of_command(text)
    ):
        self.refusal = text
        self.refused_until_ns = now_ns + REFUSED_NS
    return 0


cdef int master_on_strange_reply(
    Master self, InFlightEntry entry, Round round, object reply, int64_t now_ns
) except -1:
    # No server answers our command in this way: it is the reply to something else, and
    # each reply behind it would be read as the one before.
    round_on_vote(round, self.index, VOTE_FAILED, reply_text(reply), False, now_ns)
    if round.operation_code == OPERATION_RELEASE:
        deferred_add(self.in_flight, round, entry.key_until_ns, True)
    return master_on_lost(self, strange_text(reply), now_ns)


cdef str strange_text(object reply):
    return f"sent a reply that fits no question: {reply_text(reply)}"


cdef inline void master_note_time(
    Master self, InFlightEntry entry, Round round, int64_t now_ns
) noexcept:
    # How long the answer took, or by how much it is late.
    if round.verdict_code != VERDICT_OPEN:
        master_count_late(self, round, now_ns)
    elif operation_is(round.operation_code, OPERATION_CHANGES_KEY):
        self.samples[self.sample_count & (SAMPLES - 1)] = <uint32_t>min(
            (now_ns - entry.sent_ns) // 1000, <int64_t>0xFFFFFFFF
        )
        self.sample_count += 1


cdef void master_count_late(Master self, Round round, int64_t now_ns) noexcept:
    self.counters.late_replies += 1
    self.late_replies += 1
    # Only where the round waited for it in vain: other late replies were not read yet.
    if round.cells[self.index].vote == VOTE_SILENT:
        self.late_us = (now_ns - round.opened_ns) // 1000
