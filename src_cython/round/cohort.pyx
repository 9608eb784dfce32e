# A cohort: callers of one process that hold a lease one after the other. Pure.
#
# The masters know the token alone, so who has the lease inside of the process is the
# process's own business: a lease that is released while the next caller waits here can
# be handed on, and nothing is sent. (Lock cohorting: Dice, Marathe, Shavit, PPoPP
# 2012.) It goes to the round of that caller, which is won without having been sent:
#
#   where its stay is young     `cohort` after t0 of the round that took the key at the
#                               latest, so that other processes have their turn
#   where nobody is worse off   as much validity is left as a round of the next caller
#                               would have given if it had used its whole timeout; and
#                               the key of a holder that dies blocks others for no
#                               longer than the ttl that this caller asks for
#   where nothing else has it   of a kind that is handed on, not kept, extended, adopted
#                               or numbered, and its token was shown to nobody
#
# The round that gave it away holds nothing any more, and a token that no key has.


cdef bytes HANDED_ON = b"handed-on"


cdef bint round_may_hand_on(
    Round taken, Round next, int64_t cohort_ns, int64_t now_ns
) noexcept:
    # Whether what the one has taken, and now releases, may go to the other.
    return (
        round_is_plain(taken) and now_ns - taken.opened_ns <= cohort_ns
        and round_may_be_given(taken, next, now_ns)
    )


cdef bint round_is_plain(Round taken) noexcept:
    # Whether nothing but the lease that is released has what this has taken.
    return not (
        taken.verdict_code != VERDICT_WON or not taken.is_opened or taken.is_shown
        or taken.lease_state is not None or taken.extensions
        or not kind_is(taken.kind, KIND_IS_HANDED_ON)
        or taken.fencing is not None or taken.generation != current_generation
    )


cdef bint round_may_be_given(Round taken, Round next, int64_t now_ns) noexcept:
    # Whether it serves the caller of the other as well as a round would.
    cdef Terms terms = next.terms
    if (
        next.is_opened or next.is_finished or next.fencing is not None
        or next.kind != taken.kind or type(next.waiter) is Batch
        or taken.terms.ttl_ms > terms.ttl_ms
        or taken.terms.linger_ns != terms.linger_ns
        or taken.terms.is_of_rate != terms.is_of_rate      # a window is no hold
        or not round_may_have_slot(next, round_slot(taken))
    ):
        return False
    return round_valid_until_ns(taken) - now_ns >= round_validity_at_worst_ns(terms)


cdef inline int64_t round_validity_at_worst_ns(Terms terms) noexcept:
    # Of a round that used its whole timeout.
    return terms.ttl_ms * NS_PER_MS - terms.drift_ns - terms.timeout_ns


cdef void round_hand_on(Round taken, Round next, int64_t now_ns) noexcept:
    # All at once, and nothing that can fail.
    next.token = taken.token
    next.resource = taken.resource
    next.terms = taken.terms
    next.details = taken.details
    next.turn = None
    next.opened_ns = taken.opened_ns
    next.may_hold = taken.may_hold
    memcpy(next.cells, taken.cells, taken.master_count * sizeof(VoteCell))
    memcpy(next.counts, taken.counts, sizeof(taken.counts))
    next.is_opened = next.is_submitted = True
    next.closed_list = None
    round_close(next, VERDICT_WON, now_ns)
    taken.token = HANDED_ON
    taken.may_hold = 0
