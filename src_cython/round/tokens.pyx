# Tokens that the caller gives: when one may be used again. Pure.

# --- token use ------------------------------------------------------------------------
# The use of a token that the caller gave, with one key: none begins while a release of
# the last one may be late.
#
# A token from the kernel is used once, so a late command of an earlier round finds
# nothing to delete. A token that is given again for the same key has no such
# protection: a release that was delayed deletes the live lock. Where the caller gives
# the tokens (`new_token`; else `engine.token_uses` is None), the engine keeps one
# TokenUse for each pair of key and token. An ACQUIRE with the pair is
#
#   refused, and not sent, while fewer than a quorum of masters have confirmed the last
#     release: it ends UNREACHABLE with `is_withheld`, and the error asks the caller for
#     another token;
#   TAKEN, and not sent, while another ACQUIRE with the pair is open here: the roll-back
#     of one would delete the keys of the other;
#   sent otherwise, except to masters that lost a connection with a command of the pair
#     unanswered: it may still be executed, from a socket's buffer, when such a server
#     goes on. They get the next one LATE_NS after their next connection is ready.
#
# So the servers decide whether a lease of before is still there. While one may be, the
# roll-back of an ACQUIRE goes only to masters that granted it, which did not have the
# key of that lease; and an extension or the release of that lease, which comes behind
# the SET of an open ACQUIRE, ends that as TAKEN: what it took is the lease's.
#
# A grant begins a new use. The one before is over: nothing more is sent for it, nor
# repeated (NOSCRIPT), and its leases count as lost. Commands in flight on a connection
# that lives are executed before the new SET, as is a deferred release.

cdef enum:
    SWEEP_AT_LEAST = 256

cdef int64_t LATE_NS = 10_000_000_000


@cython.final
@cython.internal
cdef class TokenUse:
    cdef Round open              # the last ACQUIRE of the pair that was sent
    cdef Round release           # the last that was made, roll-backs too
    cdef int64_t until_ns        # keys of its lease may exist so long; 0: it has none
    cdef bint is_over            # the pair was granted anew


@cython.final
@cython.internal
cdef class TokenUses:
    cdef dict by_pair            # (key, token): TokenUse
    cdef Py_ssize_t sweep_at     # from how many on they are looked at

    def __cinit__(self):
        self.by_pair = {}


cdef int token_uses_take(TokenUses self, Round round, int64_t now_ns) except -1:
    # The round gets the last use of each of its pairs, or a first one.
    cdef list uses = []
    token_uses_sweep(self, now_ns)
    for key in round.keys or (round.resource,):
        use = self.by_pair.get((key, round.token))
        if use is None:
            use = self.by_pair[key, round.token] = TokenUse.__new__(TokenUse)
        uses.append(use)
    round.token_uses = tuple(uses)


cdef int token_uses_grant(TokenUses self, Round round, int64_t now_ns) except -1:
    # It gets a new use of each of its pairs; leases of before end here.
    for use in round.token_uses:
        (<TokenUse>use).is_over = True
    for key in round.keys or (round.resource,):
        self.by_pair.pop((key, round.token), None)
    token_uses_take(self, round, now_ns)
    return token_uses_hold(round, round.opened_ns)


cdef int token_uses_sweep(TokenUses self, int64_t now_ns) except -1:
    # Forget those of which no key can exist; costs a share of each new one.
    cdef TokenUse use
    if len(self.by_pair) < self.sweep_at:
        return 0
    for pair, use in list(self.by_pair.items()):
        if now_ns >= use.until_ns and not (
            round_is_tried(use.open) or token_use_unsettled(use, now_ns)
        ):
            use.is_over = True      # its lease may still be released: it is gone
            del self.by_pair[pair]
    self.sweep_at = max(<Py_ssize_t>SWEEP_AT_LEAST, 2 * len(self.by_pair))


cdef int token_uses_release(Round release) except -1:
    # It was made.
    for use in release.token_uses:
        (<TokenUse>use).release = release
        (<TokenUse>use).until_ns = 0


cdef uint64_t token_use_unsettled(TokenUse self, int64_t now_ns) noexcept:
    # The masters that have not confirmed the last release, as long as a key can exist.
    cdef Round release = self.release
    if release is None or release.is_opened and now_ns >= (
        max(release.opened_ns, release.closed_ns)
        + release.terms.ttl_ms * NS_PER_MS + release.terms.drift_ns
    ):
        return 0
    return release.may_hold


cdef int token_uses_hold(Round round, int64_t began_ns) except -1:
    # It gives its keys its ttl from then on.
    cdef TokenUse use
    cdef int64_t ttl_ns = round.terms.ttl_ms * NS_PER_MS + round.terms.drift_ns
    for use in round.token_uses or ():
        use.until_ns = max(use.until_ns, began_ns + ttl_ns)


cdef bint round_is_beside_lease(Round acquire, int64_t now_ns) noexcept:
    # Return whether an earlier lease with the same token may have one of its keys.
    cdef TokenUse use
    for use in acquire.token_uses or ():
        if use.open is acquire and now_ns < use.until_ns:
            return True
    return False


cdef bint round_is_overused(Round self) noexcept:
    # Return whether one of its keys was granted again under its token; it is not sent.
    for use in self.token_uses or ():
        if (<TokenUse>use).is_over:
            return True
    return False


cdef bint round_is_behind_next(Round self) noexcept:
    # ...or may be by now.
    cdef TokenUse use
    for use in self.token_uses or ():
        if use.is_over or use.open is not self and round_is_tried(use.open):
            return True
    return False


cdef bint round_is_tried(Round acquire) noexcept:
    return acquire is not None and not (acquire.is_finished or acquire.is_rolled_back)
