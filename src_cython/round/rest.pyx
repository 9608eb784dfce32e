# A key at rest: released, and kept for the next caller of this process. Pure.
#
# Where nobody waits, a lease that lingers (Terms.linger_ns) is not released at the
# masters: its key rests here, and the next acquire takes it without a byte. It is given
# up when another process asks for it (a recall), when its time is over, and when it
# does not serve a caller as well as a round would.
#
#   IN USE    a lease has the key, or nobody has: `is_at_rest` is false
#   AT REST   `round` has it, with the token; no lease knows that any more
#
# So that others find us, the token of a lease that lingers begins with the name of this
# process's channel: a gate that is asked for a key tells whoever is named in its value.


# In front of a key, in a message of a gate. No resource has such a name.
cdef bytes RECALL = b"!fastredlock:"


@cython.final
@cython.internal
cdef class Rest:
    """The place of one key that rests now and then."""

    cdef bytes resource
    cdef Round round             # has the key while it rests; used again and again
    cdef int64_t until_ns        # it rests so long at most
    cdef int64_t due_ns          # when it is looked at
    cdef bint is_at_rest


cdef Rest rest_new(Round taken):
    cdef Rest self = Rest.__new__(Rest)
    self.resource = taken.resource
    self.round = round_new(
        OPERATION_ACQUIRE, taken.resource, HANDED_ON, taken.terms, taken.master_count
    )
    self.due_ns = NEVER_NS
    return self


cdef bytes rest_token(bytes waiter, bytes token):
    # Of a lease that lingers; the process of this channel is recalled.
    return b"~" + waiter + b"~" + token


cdef int64_t round_rest_until_ns(Round taken, int64_t now_ns) noexcept:
    # How long what this has taken may rest: as long as it lingers, and as a caller
    # with its terms is served as well as by a round. 0: not at all.
    cdef Terms terms = taken.terms
    cdef int64_t until_ns = min(now_ns + terms.linger_ns, (
        round_valid_until_ns(taken) - round_validity_at_worst_ns(terms)
    ))
    return until_ns if now_ns < until_ns and round_is_plain(taken) else 0


cdef void rest_begin(Rest self, Round taken, int64_t until_ns, int64_t now_ns) noexcept:
    # All at once, and nothing that can fail.
    cdef Round round = self.round
    round.verdict_code = VERDICT_OPEN
    round.is_opened = round.is_shown = round.is_released = False
    memset(round.counts, 0, sizeof(round.counts))
    round_hand_on(taken, round, now_ns)
    round.is_finished = True
    self.until_ns = until_ns
    self.is_at_rest = True


cdef bint rest_serves(Rest self, Round next, int64_t now_ns) noexcept:
    return (
        self.is_at_rest and now_ns < self.until_ns
        and round_may_be_given(self.round, next, now_ns)
    )
