# The replies to an ACQUIRE with fencing by plain commands, SET, ZADD and mostly no more
# (round/fencing): one entry in flight is for all of them, and the last one makes
# their vote.
#
#   SET     ZADD    PEXPIRE    vote
#   nil     any     any        TAKEN
#   error   any     any        FAILED
#   OK      1       1, 0, -    GRANTED   under the number that was proposed
#   OK      0       1, 0, -    PENDING   it has that number or more: next_fence asks for
#                                        another; of a round that is over: GRANTED
#   OK      error   any        FAILED    and the key may exist
#   OK      any     error      FAILED    likewise
#   any other reply            the connection ends
#
# A connection that ends between them leaves the whole entry unanswered.


cdef int master_on_numbered_reply(Master self, object reply, int64_t now_ns) except -1:
    # What is made here may collect garbage, and a finalizer lose this connection: so
    # the entry is brought up to date before.
    cdef InFlightEntry *oldest = &self.in_flight.entries[self.in_flight.first]
    cdef InFlightEntry entry
    cdef Round round = <Round>oldest.round
    cdef bint is_error = reply_is_error(reply)
    cdef int vote
    if oldest.taken == 0:
        vote = oldest.set_vote = vote_of(REPLY_OF_SET, reply)
    else:
        vote = vote_of(REPLY_OF_SCRIPT, reply)
        if oldest.taken == 1 or vote == VOTE_FAILED:
            oldest.number_vote = vote
    oldest.taken += 1
    entry = oldest[0]
    self.heard_ns = now_ns
    if vote == VOTE_FAILED and not is_error:
        in_flight_round(in_flight_pop(self.in_flight))
        return master_on_strange_reply(self, entry, round, reply, now_ns)
    self.is_proven = True
    self.failures = 0
    if is_error and entry.taken > 1:
        self.counters.life_epoch += 1
    if entry.taken < entry.replies:
        if is_error:
            fencing_on_refused(round, self.index, reply_text(reply), entry.taken > 1)
        return 0
    in_flight_round(in_flight_pop(self.in_flight))
    if is_error:
        fencing_on_refused(round, self.index, reply_text(reply), entry.taken > 1)
    return master_on_numbered(self, entry, round, now_ns)


cdef int master_on_numbered(
    Master self, InFlightEntry entry, Round round, int64_t now_ns
) except -1:
    # All replies are in.
    cdef int vote = entry.set_vote
    refusal = None
    if vote == VOTE_GRANTED and entry.number_vote == VOTE_TAKEN and (
        round.verdict_code == VERDICT_OPEN and not round.is_rolled_back
    ):
        return master_ask_next_fence(self, round, now_ns)
    if vote == VOTE_GRANTED and entry.number_vote == VOTE_FAILED:
        vote = VOTE_FAILED
        entry.fence = FENCE_NEXT      # the key may exist, as where that is refused
    if vote == VOTE_GRANTED:
        fencing_on_numbered(round, self.index)
    if vote == VOTE_FAILED:
        refusal = (<Fencing>round.fencing).refusals.get(self.index)
    else:
        master_note_time(self, entry, round, now_ns)
    return master_on_definite(self, entry, round, vote, refusal, now_ns)


cdef int master_ask_next_fence(Master self, Round round, int64_t now_ns) except -1:
    # It sets no key, so it may come behind the release.
    cdef InFlightEntry entry = in_flight_entry(NEVER_NS, False)
    entry.fence = FENCE_NEXT
    fencing_extend(round, now_ns)
    self.counters.fences_written += fencing_is_first(<Fencing>round.fencing)
    return master_send_again(self, round, entry, now_ns)
