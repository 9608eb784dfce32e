# Deferred releases: to be sent on a master's next connection, before anything else.
#
# Deferred are the releases that were unanswered when a connection ended, and those that
# were asked for while there was none. Until the next connection is READY their keys can
# still be set, by commands that a frozen server takes out of its socket
# later; so a key can live for a ttl from then on, and its release is dropped only after
# that.
#
# There is a bound, for a master that is dead: DEFERRED_MOST releases and
# DEFERRED_BYTES_MOST of keys and tokens. Releases beyond it are counted
# (releases_dropped) and left to the ttl of their keys.

cdef enum:
    DEFERRED_MOST = 65_536
    DEFERRED_BYTES_MOST = 1 << 26


@cython.final
@cython.internal
cdef class DeferredRelease:
    """A release to be sent on the next connection."""

    cdef Round release
    cdef int64_t key_until_ns    # its key cannot exist any more; NEVER_NS: not known
    cdef bint is_second          # was sent before, and may have been executed


cdef class InFlight           # master/in_flight


cdef int deferred_add(
    InFlight self, Round release, int64_t key_until_ns, bint is_second
) except -1:
    # Keep a release for the next connection where its key may exist here. One that was
    # deferred before keeps its end: a master with many reconnections collects no old
    # ones.
    cdef DeferredRelease waiting
    cdef size_t size
    if not (release.may_hold >> self.master) & 1:
        return 0
    size = round_size(release)
    if len(self.deferred) >= DEFERRED_MOST or (
        self.deferred_bytes + size > DEFERRED_BYTES_MOST
    ):
        self.counters.releases_dropped += 1
        self.releases_dropped += 1
        return 0
    if not self.deferred and self.deferred_spare is not None:      # without memory, too
        self.deferred, self.deferred_spare = self.deferred_spare, None
        waiting = <DeferredRelease>self.deferred[0]
    else:
        waiting = DeferredRelease.__new__(DeferredRelease)
        self.deferred.append(waiting)
    waiting.release = release
    waiting.key_until_ns = key_until_ns
    waiting.is_second = is_second
    self.deferred_bytes += size
    return 0


cdef list deferred_take(InFlight self, int64_t now_ns):
    # A connection is READY: list the releases to be sent on it first. All commands of
    # earlier connections have been executed by now, or are about to be: so the time of
    # the keys begins. (TCP can deliver an older connection's bytes later, even behind
    # these releases: then no release helps, and the key lives for its ttl.)
    cdef DeferredRelease each
    cdef list empty = [], deferred
    if self.deferred_spare is None:
        self.deferred_spare = [DeferredRelease.__new__(DeferredRelease)]
    deferred = self.deferred
    self.deferred = empty
    self.deferred_bytes = 0
    for each in deferred:
        if each.key_until_ns == NEVER_NS:
            each.key_until_ns = (
                now_ns + each.release.terms.ttl_ms * NS_PER_MS
                + each.release.terms.drift_ns
            )
    return [each for each in deferred if now_ns < each.key_until_ns]
