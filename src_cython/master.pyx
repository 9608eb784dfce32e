# One master: where its connection stands, and which replies it owes.
#
# Theory of operation. The states and what leads from one to the next:
#
#   CLOSED, BACKOFF --open--> CONNECTING --connected--> HANDSHAKE --done--> READY
#   any but CLOSED  --lost--> BACKOFF        any --close--> CLOSED
#
# Every command sent on a READY connection leaves one entry in `owed`, a FIFO; every
# reply pops the oldest. So a reply is never read as another command's, however late it
# comes: the entry knows its round. A reply with no entry, one that does not fit the
# oldest entry's question, or bytes that are not RESP end the connection, for nothing
# read after them can be trusted.
#
# Unknown is not failed. When a connection is lost, the acquires it owes become FAILED
# votes whose keys may stand all the same; the releases it owes, and those asked for
# while it is away, are `carried`: sent on the next connection before anything else,
# while their keys can still live.
#
# Events take bytes and `now_ns`; the driver moves the bytes.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EINPROGRESS
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memset, strerror

from hiredis import ProtocolError, PushNotification

cdef struct Owed:
    PyObject *round          # owned; NULL for a TIME, which belongs to no round
    int64_t sent_ns
    int64_t overdue_ns       # from when on the connection counts as dead
    bint is_repeated         # sent again by its source, after NOSCRIPT


cdef enum:
    OVERDUE_AT_LEAST_NS = 1_000_000_000
    BACKOFF_FIRST_NS = 50_000_000
    BACKOFF_CAP_NS = 1_000_000_000
    BACKOFF_URGENT_NS = 20_000_000     # the spacing when a quorum is missing
    UNPARSED_LIMIT = 1048576           # bytes; our longest reply (INFO) has some 10 KiB
    SAMPLES = 64                       # round trips remembered, a power of two


@cython.final
cdef class Counters:
    """What happened since the engine was made."""

    cdef readonly int64_t rounds, won, taken, unreachable, too_late
    cdef readonly int64_t rolled_back, late_replies, repeated_scripts
    cdef readonly int64_t connects, losses


@cython.final
cdef class Scripts:
    """The scripts of the operations that need one."""

    cdef readonly Script extend, release, inspect
    cdef readonly Script acquire_all, extend_all, release_all     # of several keys

    def __init__(self, Script extend not None, Script release not None,
                 Script inspect not None, Script acquire_all not None,
                 Script extend_all not None, Script release_all not None):
        self.extend = extend
        self.release = release
        self.inspect = inspect
        self.acquire_all = acquire_all
        self.extend_all = extend_all
        self.release_all = release_all


cdef tuple scripts_listed(Scripts self):
    return (
        self.extend, self.release, self.inspect,
        self.acquire_all, self.extend_all, self.release_all,
    )


cdef int command_of_round(
    Buffer *out, Round round, Scripts scripts, bint by_source
) noexcept:
    if round.keys is not None:
        return command_of_all(out, round, scripts, by_source)
    if round.operation_code == OPERATION_ACQUIRE:
        return command_acquire(
            out, round.resource, round.token,
            round.terms.ttl_ms if round.terms.has_expiry else 0,
        )
    if round.operation_code == OPERATION_EXTEND:
        return command_script(
            out, scripts.extend, by_source, round.resource, round.token,
            round.terms.ttl_ms,
        )
    return command_script(
        out,
        scripts.release if round.operation_code == OPERATION_RELEASE
        else scripts.inspect,
        by_source, round.resource, round.token, 0,
    )


cdef int command_of_all(
    Buffer *out, Round round, Scripts scripts, bint by_source
) noexcept:
    cdef Script script = scripts.release_all
    cdef int64_t ttl_ms = 0
    if round.operation_code != OPERATION_RELEASE:
        ttl_ms = round.terms.ttl_ms
        script = scripts.extend_all
        if round.operation_code == OPERATION_ACQUIRE:
            script = scripts.acquire_all
    return command_script_of_all(
        out, script, by_source, round.keys, round.token, ttl_ms
    )


@cython.final
cdef class Master:
    """One master's settings, connection and debts."""

    cdef readonly str name           # for messages: without user or password
    cdef readonly int index
    cdef readonly str reason         # why it takes no command now, or ""
    cdef readonly str last_error     # why the last connection ended, or ""
    cdef readonly Facts facts        # of the last server seen here
    cdef readonly ServerClock clock
    cdef bint is_news                # it has become READY: the engine looks at it once
    cdef int64_t max_ttl_ns          # 0: no restart guard
    cdef int64_t votes_from_ns       # restart guard: asked for no vote before
    cdef uint32_t samples[SAMPLES]   # its last round trips in us
    cdef uint32_t sample_count
    cdef object settings             # an Endpoint
    cdef object tls_context          # an ssl.SSLContext, or None for plain text
    cdef bytes client_name
    cdef Scripts scripts
    cdef Counters counters
    cdef int state_code
    cdef Link link
    cdef AddressList addresses
    cdef Handshake handshake
    cdef TlsSession tls              # of this connection, or None
    cdef object feed, gets           # of this connection's hiredis.Reader
    cdef Owed *owed                  # a ring of owed_capacity, a power of two
    cdef uint32_t owed_first, owed_count, owed_capacity
    cdef list carried                # releases to be sent on the next connection
    cdef int failures                # connections in a row that came to nothing
    cdef bint has_spoken             # this connection has received something
    cdef bint is_proven              # this connection has answered a round
    cdef int64_t ready_at_ns
    cdef int64_t lost_at_ns
    cdef int64_t retry_at_ns
    cdef int64_t give_up_at_ns       # of connect(2) or handshake
    cdef int64_t connect_timeout_ns
    cdef size_t unparsed             # bytes fed since the last whole reply
    cdef int scan                    # of reply_is_giant
    cdef uint64_t jitter
    cdef readonly int64_t late_us    # the last reply that missed its round's deadline

    def __cinit__(self):
        if link_init(&self.link) != 0:
            raise MemoryError
        self.owed_capacity = 16
        self.owed = <Owed *>malloc(self.owed_capacity * sizeof(Owed))
        if self.owed == NULL:
            raise MemoryError

    def __init__(
        self, int index, settings, tls_context, bytes client_name, Scripts scripts,
        Counters counters, int64_t connect_timeout_ns, int64_t max_ttl_ns,
        uint64_t jitter_seed,
    ):
        self.index = index
        self.settings = settings
        self.tls_context = tls_context
        self.name = settings.name
        self.client_name = client_name
        self.scripts = scripts
        self.counters = counters
        self.connect_timeout_ns = connect_timeout_ns
        self.max_ttl_ns = max_ttl_ns
        self.jitter = jitter_seed | 1
        self.last_error = ""
        self.facts = Facts(None)
        self.clock = ServerClock()
        self.carried = []
        self.reason = "not connected yet"

    def __dealloc__(self):
        while self.owed_count:
            owed_round(owed_pop(self))
        free(self.owed)
        link_close(&self.link)
        free(self.link.incoming)


cdef int master_set_state(Master self, int state) except -1:
    # The gate: the only place that changes the state.
    cdef int old = self.state_code
    cdef bint is_legal
    if state == MASTER_CONNECTING:
        is_legal = old == MASTER_CLOSED or old == MASTER_BACKOFF
    elif state == MASTER_HANDSHAKE:
        is_legal = old == MASTER_CONNECTING
    elif state == MASTER_READY:
        is_legal = old == MASTER_HANDSHAKE
    elif state == MASTER_BACKOFF:
        is_legal = old != MASTER_CLOSED
    else:
        is_legal = state == MASTER_CLOSED
    if not is_legal:
        raise RuntimeError(f"master state {old} -> {state}")
    self.state_code = state
    return 0


# --- debts --------------------------------------------------------------------------

cdef Owed owed_pop(Master self) noexcept:
    cdef Owed oldest = self.owed[self.owed_first]
    self.owed_first = (self.owed_first + 1) & (self.owed_capacity - 1)
    self.owed_count -= 1
    self.link.owed = self.owed_count
    return oldest


cdef Round owed_at(Master self, uint32_t index):
    # The round of an entry, counted from the oldest; None for a TIME.
    cdef PyObject *round
    round = self.owed[(self.owed_first + index) & (self.owed_capacity - 1)].round
    return None if round == NULL else <Round>round


cdef Round owed_round(Owed entry):
    # The entry's round, its reference taken over; None for a TIME.
    if entry.round == NULL:
        return None
    round = <Round>entry.round
    Py_DECREF(round)
    return round


cdef int owed_push(
    Master self, Round round, bint is_repeated, int64_t now_ns
) except -1:
    cdef uint32_t i
    cdef Owed *grown
    cdef Owed *entry
    if self.owed_count == self.owed_capacity:
        grown = <Owed *>malloc(2 * self.owed_capacity * sizeof(Owed))
        if grown == NULL:
            raise MemoryError
        for i in range(self.owed_count):
            grown[i] = self.owed[(self.owed_first + i) & (self.owed_capacity - 1)]
        free(self.owed)
        self.owed = grown
        self.owed_first = 0
        self.owed_capacity *= 2
    entry = &self.owed[(self.owed_first + self.owed_count) & (self.owed_capacity - 1)]
    entry.round = NULL
    entry.sent_ns = now_ns
    entry.overdue_ns = now_ns + OVERDUE_AT_LEAST_NS
    if round is not None:
        Py_INCREF(round)
        entry.round = <PyObject *>round
        entry.overdue_ns = now_ns + max(
            <int64_t>OVERDUE_AT_LEAST_NS, 2 * round.terms.timeout_ns
        )
    entry.is_repeated = is_repeated
    self.owed_count += 1
    self.link.owed = self.owed_count
    return 0


cdef int master_send(
    Master self, Round round, Buffer *command, bint is_repeated, int64_t now_ns
) except -1:
    # The debt first: bytes without an entry would shift every later reply.
    owed_push(self, round, is_repeated, now_ns)
    round_on_sent(round, self.index)
    if self.tls is not None:
        return master_say(self, command.data[command.start:command.end], now_ns)
    if buffer_append(
        &self.link.outgoing, command.data + command.start, buffer_length(command)
    ) != 0:
        return master_on_lost(self, "out of memory", now_ns)
    return 0


cdef int master_send_again(
    Master self, Round round, bint by_source, int64_t now_ns
) except -1:
    cdef Buffer command
    memset(&command, 0, sizeof(Buffer))
    try:
        if command_of_round(&command, round, self.scripts, by_source) != 0:
            raise MemoryError
        master_send(self, round, &command, by_source, now_ns)
    finally:
        buffer_free(&command)
    return 0


cdef int master_carry(Master self, Round release, int64_t now_ns) except -1:
    # Keeps a release for the next connection where its key may stand here. The key
    # cannot live longer than a ttl from the release on.
    if not (release.may_hold >> self.index) & 1:
        return 0
    if len(self.carried) & 63 == 63:
        self.carried = [
            old for old in self.carried if master_key_can_live(<Round>old, now_ns)
        ]
    if master_key_can_live(release, now_ns):
        self.carried.append(release)
    return 0


cdef bint master_key_can_live(Round release, int64_t now_ns) noexcept:
    return now_ns < release.opened_ns + release.terms.ttl_ms * NS_PER_MS


# --- events -------------------------------------------------------------------------

cdef int master_on_connected(Master self, int64_t now_ns) except -1:
    reader = reply_reader()
    self.feed = reader.feed
    self.gets = reader.gets
    self.unparsed = 0
    self.scan = SCAN_LINE_START
    self.is_proven = False
    self.handshake = Handshake(
        encoded(self.settings.username), encoded(self.settings.password),
        self.settings.db,
        self.client_name,
        scripts_listed(self.scripts),
    )
    master_set_state(self, MASTER_HANDSHAKE)
    self.reason = self.last_error or "no answer to the handshake yet"
    self.has_spoken = False
    self.give_up_at_ns = now_ns + self.connect_timeout_ns
    try:
        if self.tls_context is not None:
            self.reason = "no answer to TLS yet: does the server speak it on this port?"
            self.link.is_parsing = True
            self.tls = TlsSession(self.tls_context, self.settings.host)
            master_append(self, self.tls.start())
    except (OSError, ValueError) as error:
        return master_on_lost(self, tls_error_text(error), now_ns)
    except BaseException:
        master_on_lost(self, "interrupted", now_ns)
        raise
    finally:
        self.link.is_parsing = False
    return master_say(self, self.handshake.start(), now_ns)


cdef bytes encoded(str text):
    return None if text is None else text.encode("utf-8", "surrogateescape")


cdef int master_say(Master self, bytes plain, int64_t now_ns) except -1:
    # Queue what we say, encrypted where the connection is.
    if self.tls is None:
        return master_append(self, plain)
    self.tls.unsaid.append(plain)
    if self.link.is_parsing:      # who is at it encrypts this as well, in its turn
        return 0
    return master_encrypt(self, now_ns)


cdef int master_encrypt(Master self, int64_t now_ns) except -1:
    # ssl runs Python code, in which a signal handler may take a lock or raise. The
    # first finds the master busy, and its command waits in `unsaid`, in the order of
    # the debts. After the second nobody knows what was encrypted: a debt without its
    # bytes would shift every later reply.
    self.link.is_parsing = True
    try:
        while self.tls is not None and self.tls.unsaid and self.tls.is_established:
            master_append(self, self.tls.say(self.tls.unsaid.pop(0)))
    except OSError as error:
        return master_on_lost(self, tls_error_text(error), now_ns)
    except BaseException:
        master_on_lost(self, "interrupted", now_ns)
        raise
    finally:
        self.link.is_parsing = False
    return 0


cdef int master_append(Master self, bytes data) except -1:
    if buffer_append(
        &self.link.outgoing, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data)
    ) != 0:
        raise MemoryError
    return 0


cdef int master_on_received(Master self, bytes data, int64_t now_ns) except -1:
    """Take what the link received: plain text, or records of TLS."""
    self.has_spoken = True
    if self.tls is None:
        return master_on_bytes(self, data, now_ns)
    self.link.is_parsing = True
    try:
        plain, records = self.tls.receive(data)
    except OSError as error:
        return master_on_lost(self, tls_error_text(error), now_ns)
    except BaseException:
        master_on_lost(self, "interrupted", now_ns)
        raise
    finally:
        self.link.is_parsing = False
    master_append(self, records)
    master_on_bytes(self, plain, now_ns)
    return 0 if self.tls is None else master_encrypt(self, now_ns)


cdef int master_on_bytes(Master self, bytes data, int64_t now_ns) except -1:
    """Take received bytes: every whole reply in them pops its entry."""
    self.link.is_parsing = True
    try:
        master_take_replies(self, data, now_ns)
    except ProtocolError as error:
        master_on_lost(self, not_resp_text(data, error), now_ns)
    except BaseException:      # out of memory: which replies were taken?
        if self.state_code == MASTER_HANDSHAKE or self.state_code == MASTER_READY:
            master_on_lost(self, "interrupted", now_ns)
        raise
    finally:
        self.link.is_parsing = False
    if self.unparsed > UNPARSED_LIMIT:
        master_on_lost(self, "a reply of over 1 MiB: not to our commands", now_ns)
    return 0


cdef int master_take_replies(Master self, bytes data, int64_t now_ns) except -1:
    cdef Py_ssize_t taken = 0
    # No reply is shorter than a line, so as many replies as lines are all there is: it
    # saves to ask the reader, after the last one, whether there is another.
    cdef int most = -1
    if self.unparsed == 0 and self.state_code == MASTER_READY:
        taken = master_take_usual(self, data, now_ns)
        if taken == PyBytes_GET_SIZE(data) or self.state_code != MASTER_READY:
            return 0
        if taken > 0:
            data = data[taken:]
        most = line_count(data)
    if reply_is_giant(
        &self.scan, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data)
    ):
        return master_on_lost(
            self, "announces a million elements: no reply to our commands", now_ns
        )
    self.feed(data)
    self.unparsed += <size_t>PyBytes_GET_SIZE(data)
    while self.state_code >= MASTER_HANDSHAKE and self.state_code != MASTER_BACKOFF:
        reply = master_next_reply(self)
        if reply is INCOMPLETE:
            break
        self.unparsed = 0
        if type(reply) is not PushNotification:
            master_on_reply(self, reply, now_ns)
        most -= 1
        if most == 0:
            break
    return 0


cdef Py_ssize_t master_take_usual(Master self, bytes data, int64_t now_ns) except -1:
    # The usual replies that stand at the beginning; returns how many bytes those are.
    cdef const char *at = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data), taken = 0
    cdef int length = 0
    while taken < size and self.state_code == MASTER_READY:
        reply = usual_reply(at + taken, size - taken, &length)
        if reply is INCOMPLETE:
            break
        taken += length
        master_on_reply(self, reply, now_ns)
    return taken


cdef int line_count(bytes data) noexcept:
    # -1 where the last line is not whole.
    cdef const char *at = PyBytes_AS_STRING(data)
    cdef const char *end = at + PyBytes_GET_SIZE(data)
    cdef int count = 0
    while at < end:
        at = <const char *>memchr(at, c'\n', end - at)
        if at == NULL:
            return -1
        at += 1
        count += 1
    return count


cdef object master_next_reply(Master self):
    try:
        return self.gets()
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        # hiredis makes Python objects at once: of a map with a list for a key, or of an
        # array that announces 2^32 elements, it cannot.
        raise ProtocolError(f"{type(error).__name__} in a reply") from error


cdef str not_resp_text(bytes data, object error):
    if data[:1] == b"\x15":      # an alert record: RFC 8446, section 5.1
        return "speaks TLS: use rediss:// for this master"
    return f"speaks something else than RESP: {error}"


cdef int master_on_reply(Master self, object reply, int64_t now_ns) except -1:
    cdef Owed entry
    cdef Round round
    cdef int vote
    if self.state_code == MASTER_HANDSHAKE:
        return master_on_handshake_reply(self, reply, now_ns)
    if self.owed_count == 0:
        return master_on_lost(self, "sent a reply nobody asked for", now_ns)
    entry = owed_pop(self)
    round = owed_round(entry)
    if round is None:
        return master_on_time(self, reply, entry.sent_ns, now_ns)
    vote = vote_of(round.operation_code, round.keys is not None, reply)
    if vote == VOTE_FAILED and not reply_is_error(reply):
        return master_on_strange_reply(self, round, reply, now_ns)
    self.is_proven = True
    self.failures = 0
    if vote == VOTE_FAILED:
        return master_on_failed_reply(self, round, reply, entry.is_repeated, now_ns)
    if round.verdict_code != VERDICT_OPEN:
        master_count_late(self, round, now_ns)
    elif round.operation_code != OPERATION_INSPECT:
        self.samples[self.sample_count & (SAMPLES - 1)] = <uint32_t>min(
            (now_ns - entry.sent_ns) // 1000, <int64_t>0xFFFFFFFF
        )
        self.sample_count += 1
    said = reply if round.operation_code == OPERATION_INSPECT else None
    return round_on_vote(round, self.index, vote, said, True, now_ns)


cdef int master_ask_time(Master self, int64_t now_ns) except -1:
    # Rides with a round's command, in the same write; its reply is nobody's vote.
    self.clock.asked_at_ns = now_ns
    owed_push(self, None, False, now_ns)
    return master_say(self, b"*1\r\n$4\r\nTIME\r\n", now_ns)


cdef int master_on_time(
    Master self, object reply, int64_t sent_ns, int64_t now_ns
) except -1:
    if type(reply) is not list and not reply_is_error(reply):
        return master_on_lost(self, strange_text(reply), now_ns)
    if self.clock.on_time(reply, sent_ns, now_ns):
        self.is_news = True
    return 0


cdef int master_on_strange_reply(
    Master self, Round round, object reply, int64_t now_ns
) except -1:
    # No server answers so to what we asked: it is the answer to something else, and
    # each reply behind it would be read as the one before.
    round_on_vote(round, self.index, VOTE_FAILED, reply_text(reply), False, now_ns)
    if round.operation_code == OPERATION_RELEASE:
        master_carry(self, round, now_ns)
    return master_on_lost(self, strange_text(reply), now_ns)


cdef str strange_text(object reply):
    return f"sent a reply that fits no question: {reply_text(reply)}"


cdef int master_on_failed_reply(
    Master self, Round round, object reply, bint is_repeated, int64_t now_ns
) except -1:
    if (
        not is_repeated and str(reply).startswith("NOSCRIPT")
        and round_may_repeat(round)
    ):
        self.counters.repeated_scripts += 1
        return master_send_again(self, round, True, now_ns)
    # An error reply says that the command did nothing: it is as definite as a no.
    return round_on_vote(
        round, self.index, VOTE_FAILED, reply_text(reply), True, now_ns
    )


cdef int master_sample_count(Master self) noexcept:
    return <int>min(self.sample_count, <uint32_t>SAMPLES)


cdef void master_count_late(Master self, Round round, int64_t now_ns) noexcept:
    self.counters.late_replies += 1
    # Only where the round waited for it in vain: others were just not read before.
    if round.cells[self.index].vote == VOTE_SILENT:
        self.late_us = (now_ns - round.opened_ns) // 1000


cdef int master_on_handshake_reply(Master self, object reply, int64_t now_ns) except -1:
    cdef bytes answer = self.handshake.on_reply(reply)
    if self.handshake.failure is not None:
        return master_on_lost(self, self.handshake.failure, now_ns)
    master_say(self, answer, now_ns)
    if self.state_code != MASTER_HANDSHAKE:      # TLS refused to take it
        return 0
    if self.handshake.is_done:
        self.facts = self.handshake.facts
        self.votes_from_ns = guard_until_ns(self.facts, self.max_ttl_ns, now_ns)
        self.clock = ServerClock()
        self.is_news = True
        self.handshake = None
        master_set_state(self, MASTER_READY)
        self.reason = ""
        self.ready_at_ns = now_ns
        self.counters.connects += 1
        carried = self.carried
        self.carried = []
        for release in carried:
            if master_key_can_live(<Round>release, now_ns):
                master_send_again(self, <Round>release, False, now_ns)
    return 0


cdef int master_on_lost(Master self, str reason, int64_t now_ns) except -1:
    """End the connection: what it owes fails, or is carried to the next one."""
    cdef Round round
    cdef bint was_parsing = self.link.is_parsing
    if self.state_code == MASTER_HANDSHAKE and not self.has_spoken and not self.tls:
        reason += " (before it said anything: does this port want rediss://?)"
    cdef bint is_proven = self.is_proven or (
        self.state_code == MASTER_READY
        and now_ns - self.ready_at_ns > OVERDUE_AT_LEAST_NS
    )
    link_close(&self.link)
    self.feed = self.gets = self.handshake = self.addresses = self.tls = None
    master_set_state(self, MASTER_BACKOFF)
    self.reason = self.last_error = reason
    self.counters.losses += 1
    self.lost_at_ns = now_ns
    self.unparsed = 0
    self.is_proven = False
    if is_proven:      # it worked until now: try again in the very next round
        self.failures = 0
        self.retry_at_ns = now_ns
    else:
        self.failures += 1
        self.retry_at_ns = now_ns + master_backoff_ns(self)
    # Hands off until all is settled: a finalizer in between that reconnected would put
    # new debts behind the old ones.
    self.link.is_parsing = True
    try:
        while self.owed_count:
            round = owed_round(owed_pop(self))
            if round is None:
                continue
            if round.operation_code == OPERATION_RELEASE:
                master_carry(self, round, now_ns)
            if round.verdict_code == VERDICT_OPEN:
                round_on_vote(round, self.index, VOTE_FAILED, reason, False, now_ns)
    finally:
        self.link.is_parsing = was_parsing
    return 0


cdef int64_t master_backoff_ns(Master self) noexcept:
    # Doubles up to the cap; the upper half is drawn, so that clients spread.
    cdef int64_t longest = min(
        <int64_t>BACKOFF_FIRST_NS << min(self.failures - 1, 10),
        <int64_t>BACKOFF_CAP_NS,
    )
    self.jitter ^= self.jitter << 13      # xorshift64, Marsaglia 2003
    self.jitter ^= self.jitter >> 7
    self.jitter ^= self.jitter << 17
    return longest // 2 + <int64_t>(self.jitter % <uint64_t>(longest // 2))


cdef int master_check_time(Master self, int64_t now_ns) except -1:
    """Give up what takes too long; asked only after all that came has been read."""
    if self.state_code == MASTER_READY:
        if self.owed_count and self.owed[self.owed_first].overdue_ns < now_ns:
            master_on_lost(self, "owed a reply for too long", now_ns)
    elif self.state_code == MASTER_HANDSHAKE:
        if now_ns >= self.give_up_at_ns:
            master_on_lost(self, self.reason, now_ns)
    elif self.state_code == MASTER_CONNECTING and now_ns >= self.give_up_at_ns:
        master_on_address_failed(self, "connect timed out", now_ns)
    return 0


cdef int master_expire_rounds(Master self, int64_t now_ns) except -1:
    # A round that is still open has a PENDING vote, so one of its masters owes it.
    cdef uint32_t i
    cdef Round round
    for i in range(self.owed_count):
        round = owed_at(self, i)
        if (
            round is not None and round.verdict_code == VERDICT_OPEN
            and now_ns >= round.opened_ns + round.terms.timeout_ns
        ):
            round_on_deadline(round, now_ns)
    return 0


cdef int64_t master_next_ns(Master self, int64_t now_ns) noexcept:
    # When something is due here; a thing that is overdue by now counts from now on.
    cdef uint32_t i
    cdef int64_t next_ns = NEVER_NS
    cdef Round round
    if self.state_code == MASTER_CONNECTING or self.state_code == MASTER_HANDSHAKE:
        return max(self.give_up_at_ns, now_ns + NS_PER_MS)
    if self.owed_count:
        next_ns = max(self.owed[self.owed_first].overdue_ns, now_ns + NS_PER_MS)
    for i in range(self.owed_count):
        round = owed_at(self, i)
        if round is not None and round.verdict_code == VERDICT_OPEN:
            next_ns = min(next_ns, round.opened_ns + round.terms.timeout_ns)
    return next_ns


# --- opening ------------------------------------------------------------------------

cdef bint master_is_due(Master self, bint is_urgent, int64_t now_ns) noexcept:
    if self.link.is_parsing:
        return False
    if self.state_code == MASTER_BACKOFF:
        return self.retry_at_ns <= now_ns or (
            is_urgent and self.lost_at_ns + BACKOFF_URGENT_NS <= now_ns
        )
    return self.state_code == MASTER_CLOSED


cdef int master_begin_connect(Master self, int64_t now_ns) except -1:
    master_set_state(self, MASTER_CONNECTING)
    self.reason = self.last_error or "connecting"
    self.give_up_at_ns = now_ns + self.connect_timeout_ns
    return 0


cdef int master_open(Master self, int64_t now_ns) except -1:
    """Begin to connect; nothing here waits."""
    cdef int fd
    cdef bytes host
    master_begin_connect(self, now_ns)
    self.addresses = AddressList()
    try:
        if address_is_unix(self.addresses, self.settings.path):
            return master_try_address(self, now_ns)
        host = self.settings.host.encode(
            "ascii" if self.settings.host.isascii() else "idna"
        )
        if address_is_literal(self.addresses, host, self.settings.port):
            return master_try_address(self, now_ns)
        fd = address_begin_look_up(self.addresses, host, self.settings.port)
    except (OSError, RuntimeError, UnicodeError) as error:
        return master_on_lost(self, f"{type(error).__name__}: {error}", now_ns)
    except BaseException:      # the codec of a name in Unicode runs Python code
        master_on_lost(self, "interrupted", now_ns)
        raise
    if fd < 0:
        return master_on_lost(self, error_text(fd), now_ns)
    self.link.fd = fd
    self.link.phase = LINK_RESOLVING
    return 0


cdef int master_on_resolved(Master self, int64_t now_ns) except -1:
    link_close(&self.link)
    if self.addresses.gai_error != 0:
        told = <bytes>gai_strerror(self.addresses.gai_error)
        reason = f"name look-up: {told.decode('utf-8', 'replace').lower()}"
        return master_on_lost(self, reason, now_ns)
    return master_try_address(self, now_ns)


cdef int master_try_address(Master self, int64_t now_ns) except -1:
    cdef Address *address
    cdef int error
    if self.addresses.next >= self.addresses.count:
        return master_on_lost(self, "the name has no address", now_ns)
    address = &self.addresses.addresses[self.addresses.next]
    self.addresses.next += 1
    self.give_up_at_ns = now_ns + self.connect_timeout_ns // self.addresses.count
    error = link_open(&self.link, <sockaddr *>&address.storage, address.size)
    if error != 0:
        return master_on_address_failed(self, error_text(error), now_ns)
    return 0


cdef int master_on_address_failed(Master self, str reason, int64_t now_ns) except -1:
    if self.addresses is not None and self.addresses.next < self.addresses.count:
        link_close(&self.link)
        return master_try_address(self, now_ns)
    return master_on_lost(self, reason, now_ns)


cdef int master_on_connect_event(Master self, int64_t now_ns) except -1:
    cdef int error = link_finish_connect(&self.link)
    if error == -EINPROGRESS:
        return 0
    if error != 0:
        return master_on_address_failed(self, error_text(error), now_ns)
    return master_on_connected(self, now_ns)


cdef str error_text(int error):
    return (<bytes>strerror(-error)).decode("utf-8", "replace").lower()
