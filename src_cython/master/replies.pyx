# Replies: each pops the oldest entry in flight, and becomes a vote of its round, or the
# end of the connection.
#
# From below: master_on_handshake_reply (connect), master_on_numbered_reply (numbered).

from libc.stdint cimport int64_t, uint32_t


cdef int master_on_reply(Master self, object reply, int64_t now_ns) except -1:
    cdef InFlightEntry entry
    cdef Round round
    cdef int vote
    if self.state_code == MASTER_HANDSHAKE:
        return master_on_handshake_reply(self, reply, now_ns)
    if self.in_flight.count == 0:
        return master_on_lost(self, "sent a reply nobody asked for", now_ns)
    if self.in_flight.entries[self.in_flight.first].replies:
        return master_on_numbered_reply(self, reply, now_ns)
    entry = in_flight_pop(self.in_flight)
    self.heard_ns = now_ns
    slowness_on_reply(
        &self.slowness, self.counters.slow_from_ns,
        self.link.looked_before_ns - entry.sent_ns, now_ns - entry.sent_ns, now_ns,
    )
    round = in_flight_round(entry)
    if round is None:
        return master_on_other_reply(self, entry, reply, now_ns)
    if entry.kind == ENTRY_CHECK:
        return master_on_check(self, round, reply, now_ns)
    vote = vote_of(
        reply_kind(
            round, entry.is_second, entry.is_at_gate, entry.is_native, entry.fence
        ),
        reply,
    )
    if entry.is_second:
        vote = vote_of_second(round.operation_code, vote)
    if vote == VOTE_FAILED and not reply_is_error(reply):
        return master_on_strange_reply(self, entry, round, reply, now_ns)
    self.is_proven = True
    self.failures = 0
    if vote == VOTE_FAILED:
        if entry.is_native and round_may_repeat(round):
            return master_on_native_refused(self, round, reply, now_ns)
        return master_on_failed_reply(self, entry, round, reply, now_ns)
    if entry.is_native:
        self.native_is_proven = True
    if entry.is_at_gate:
        at_gate = reply[0] if type(reply) is list else reply
        round_on_gate_reply(round, at_gate)
        if round.was_told:
            self.told.append(round.resource)
        if at_gate >= GATE_MOVED:
            self.moved.append(round)
        elif vote == VOTE_TAKEN and round.verdict_code == VERDICT_WON and (
            round.operation_code == OPERATION_ACQUIRE
        ):
            self.turns.append(round.resource)      # our entry stands (pushes)
    if round.fencing is not None and vote == VOTE_GRANTED:
        fencing_on_granted(round, self.index, entry.fence, reply)
    master_note_time(self, entry, round, now_ns)
    said = None
    if round.operation_code == OPERATION_INSPECT or (
        round.operation_code == OPERATION_ASK_TURN
    ):
        said = reply
    return master_on_definite(self, entry, round, vote, said, now_ns)


cdef int master_on_definite(
    Master self, InFlightEntry entry, Round round, int vote, object said, int64_t now_ns
) except -1:
    # What failed in an open round is counted when that ends (engine_count_failures).
    if round.operation_code <= OPERATION_PING and round.check != CHECK_TELLING and (
        vote != VOTE_FAILED or round.is_finished
    ):
        self.votes[vote] += 1
    round_on_vote(round, self.index, vote, said, True, now_ns)
    if entry.is_second and round.operation_code <= OPERATION_EXTEND:
        # The command on the first connection has been executed, or may still be: an
        # answer to the second, an error too, proves nothing about it.
        round_on_sent(round, self.index)
    elif entry.fence:      # nor one to a further command, about the SET
        round_on_sent(round, self.index)
    return 0


cdef int master_on_other_reply(
    Master self, InFlightEntry entry, object reply, int64_t now_ns
) except -1:
    if entry.kind == ENTRY_CHECK:
        return master_on_checks(self, reply, now_ns)
    if entry.kind == ENTRY_TIME:
        return master_on_time_reply(self, reply, entry.sent_ns, now_ns)
    if entry.kind == ENTRY_SUBSCRIBE:
        return master_on_unsubscribed(self, reply, now_ns)
    if entry.kind == ENTRY_LOAD and type(reply) is bytes:
        return 0
    if type(reply) is not int and not reply_is_error(reply):
        return master_on_lost(self, strange_text(reply), now_ns)
    self.lost_ids = self.lost_ids[1:]
    return 0


cdef int master_on_time_reply(
    Master self, object reply, int64_t sent_ns, int64_t now_ns
) except -1:
    if type(reply) is not list and not reply_is_error(reply):
        return master_on_lost(self, strange_text(reply), now_ns)
    if self.clock.on_time(reply, sent_ns, now_ns):
        self.needs_review = True
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


cdef int master_on_failed_reply(
    Master self, InFlightEntry entry, Round round, object reply, int64_t now_ns
) except -1:
    if (
        not entry.is_by_source and reply_said(reply).startswith("NOSCRIPT")
        and round_may_repeat(round)
    ):
        self.counters.repeated_scripts += 1
        round_on_repeated(round)
        again = in_flight_entry(entry.key_until_ns, entry.is_second)
        again.is_by_source = True
        again.is_at_gate = entry.is_at_gate
        again.fence = entry.fence
        return master_send_again(self, round, again, now_ns)
    if entry.is_at_gate and reply_said(reply).startswith("NOSCRIPT"):
        master_on_turn_lost(self, round, now_ns)
    if round.operation_code == OPERATION_RELEASE and text_forbids(reply_said(reply)):
        return master_on_forbidden_release(self, entry, round, reply, now_ns)
    if round.operation_code == OPERATION_RELEASE and text_is_of_now(reply_said(reply)):
        return master_on_busy_release(self, entry, round, reply, now_ns)
    # An error reply means that the command did nothing: it is as definite as a no.
    return master_on_definite(
        self, entry, round, VOTE_FAILED, reply_text(reply), now_ns
    )


cdef int master_on_native_refused(
    Master self, Round round, object reply, int64_t now_ns
) except -1:
    # It has done nothing; the script may be allowed to do what the command is not.
    cdef str said = reply_said(reply)
    cdef InFlightEntry again = in_flight_entry(NEVER_NS, False)
    if text_forbids(said) or said.startswith("ERR unknown command"):
        self.native = FORM_SCRIPT
    round_on_repeated(round)
    again.is_by_source = self.may_eval
    return master_send_again(self, round, again, now_ns)


cdef int master_on_forbidden_release(
    Master self, InFlightEntry entry, Round round, object reply, int64_t now_ns
) except -1:
    # The ACL has changed, or forbids a key that it lets us SET. Where it is a command,
    # no lock may be taken here any more: the next handshake finds out, or has the
    # right back (and the script loaded again), and then the release is sent, once.
    cdef bint is_command = text_forbids_command(reply_said(reply))
    cdef bint is_first = entry.key_until_ns == NEVER_NS
    said = reply_text(reply)
    if not is_command:
        said = f"a lock was not released here ({said}): grant its user the key (~...)"
        master_add_warnings(self, [said])
    if not is_command or not is_first:
        return round_on_vote(
            round, self.index, VOTE_FAILED, reply_text(reply), True, now_ns
        )
    said = unreleased_text(said, "+evalsha +eval +get +del")
    master_add_warnings(self, [said])
    round_on_vote(round, self.index, VOTE_FAILED, said, False, now_ns)
    deferred_add(self.in_flight, round, NEVER_NS, False)
    return master_on_lost(self, said, now_ns)


cdef int master_on_busy_release(
    Master self, InFlightEntry entry, Round round, object reply, int64_t now_ns
) except -1:
    # A slow script runs there: the server does nothing else until it has ended. The
    # next handshake succeeds then, and the release is sent behind it.
    said = reply_text(reply)
    round_on_vote(round, self.index, VOTE_FAILED, said, False, now_ns)
    deferred_add(self.in_flight, round, entry.key_until_ns, entry.is_second)
    return master_on_lost(self, said, now_ns)


cdef inline void master_note_time(
    Master self, InFlightEntry entry, Round round, int64_t now_ns
) noexcept:
    # How long the answer took, or by how much it is late.
    if round.verdict_code != VERDICT_OPEN:
        master_count_late(self, round, now_ns)
    elif round.operation_code < OPERATION_INSPECT:
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
