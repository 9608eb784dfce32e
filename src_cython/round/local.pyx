# What is decided in this process alone, without the network: a lease is handed on, or
# a command under a given token is not sent.

# --- cohort ---------------------------------------------------------------------------
# A cohort: callers of one process that hold a lease one after the other. Pure.
#
# The masters know the token alone. So a lease that is released while the next caller
# waits here can be handed on, and nothing is sent (lock cohorting: Dice, Marathe,
# Shavit, PPoPP 2012). It goes to the round of that caller, which is won:
#
#   where its stay is young     `cohort` after t0 of the round that took the key at the
#                               latest, so that other processes have their turn (turns)
#   where nobody is worse off   as much validity is left as a round of the next caller
#                               would have given if it had used its whole timeout; and
#                               the key of a holder that dies blocks others for no
#                               longer than the ttl that this caller asks for
#   where nothing else has it   of a kind that is handed on, not kept, extended, adopted
#                               or numbered, and its token was shown to nobody
#
# The round that gave it away holds nothing any more, and a token that no key has.

cdef bint round_is_plain(Round grant) noexcept:
    # Return whether only the lease that is released has what this was granted.
    return not (
        grant.verdict_code != VERDICT_WON or not grant.is_opened or grant.is_shown
        or grant.is_released_twice or grant.lease_state is not None or grant.extensions
        or not kind_is(grant.kind, KIND_IS_HANDED_ON)
        or grant.fencing is not None or grant.generation != current_generation
    )


cdef bint round_may_be_given(Round grant, Round next, int64_t now_ns) noexcept:
    # Return whether it serves the caller of the other as well as a round would.
    cdef Terms terms = next.terms
    return not (
        next.is_opened or next.is_finished or next.fencing is not None
        or next.kind != grant.kind or type(next.waiter) is Batch
        or grant.terms.ttl_ms > terms.ttl_ms
        or grant.terms.idle_ns != terms.idle_ns
        or grant.terms.is_of_rate != terms.is_of_rate      # a window is no hold
        or not round_may_have_slot(next, round_slot(grant))
        or round_valid_until_ns(grant) - now_ns < round_validity_at_worst_ns(terms)
    )


cdef inline int64_t round_validity_at_worst_ns(Terms terms) noexcept:
    # Return the validity of a round that used its whole timeout.
    return terms.ttl_ms * NS_PER_MS - terms.drift_ns - terms.timeout_ns


# --- given tokens ---------------------------------------------------------------------
# Whether an EXTEND or a RELEASE under a token of the caller may be sent (token use).

cdef str USED_HERE = "in use in this process at the same time, under the same token"


cdef bint round_may_be_sent(Round self, int64_t now_ns) except -1:
    # It may unless its lease is over; an open ACQUIRE under the token gives way to it.
    cdef TokenUse use
    if round_is_overused(self):
        return False
    if self.operation_code == OPERATION_EXTEND:
        token_uses_hold(self, now_ns)
    for use in self.token_uses or ():
        if round_is_tried(use.open):
            round_take_over(self, use.open, USED_HERE, now_ns)
    return True
