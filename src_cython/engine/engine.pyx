# The N masters: start a round on all of them, roll a lost one back, reopen the lost.
#
# The engine moves no bytes and waits for nothing: it queues commands on connections
# and entries in FIFOs. A driver (wait, or an event loop) does the rest.

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t


@cython.final
cdef class Engine:
    """The connections to N masters, shared by everybody in this process."""

    cdef readonly Counters counters
    cdef readonly bint is_closed
    cdef readonly uint32_t generation      # of the process that opened the connections
    cdef readonly int64_t round_trip_ns    # smoothed time of a round, 0 before any
    cdef readonly list warnings            # (master's name, text), each once
    cdef list masters
    cdef Link *links[MAX_MASTERS]          # as configured
    cdef pollfd polled[MAX_MASTERS + 1]  # and the bell
    cdef int master_count
    cdef int quorum
    cdef Link *in_turn[MAX_MASTERS]        # in the order of writing and reading
    cdef Scripts scripts
    cdef Buffer command                    # kept for the next one to be queued
    cdef int64_t connect_timeout_ns
    cdef int64_t polled_at_ns              # when the sockets were last looked at
    cdef readonly int64_t next_ns          # nothing is due before
    cdef list admissions                   # rounds that wait for connections
    cdef list closed                       # rounds that have closed, to be finished
    cdef bint has_batch                    # queued: more than sockets take at once
    cdef list by_hand                      # simulator: masters to connect; else None
    cdef Crowd crowd                       # the threads that share this engine
    cdef bint servers_may_be_same          # compat: databases of one server
    cdef dict uses                         # (key, token): TokenUse; None: own tokens
    cdef Py_ssize_t sweep_at               # uses, from how many on they are looked at
    cdef object driver                     # of the event loop that drives it, or None
    cdef object __weakref__

    def __cinit__(self):
        self.crowd = Crowd()
        self.admissions = []
        self.closed = []
        self.next_ns = NEVER_NS

    def __init__(
        self, endpoints, Scripts scripts not None, int64_t connect_timeout_ns,
        tuple tls_contexts=(), int64_t max_ttl_ns=0,
        bytes client_name=b"fastredlock", uint64_t jitter_seed=0,
        bint tokens_are_given=False, bint servers_may_be_same=False,
    ):
        cdef Master master
        if self.masters is not None:
            raise RuntimeError("an engine is initialised once")
        if not 0 < len(endpoints) <= MAX_MASTERS:
            raise ValueError(f"1 to {MAX_MASTERS} masters, not {len(endpoints)}")
        jitter_seed = jitter_seed or <uint64_t>int(draw_token()[:16], 16)
        self.counters = Counters()
        self.warnings = []
        self.scripts = scripts
        self.connect_timeout_ns = connect_timeout_ns
        self.generation = current_generation
        self.uses = {} if tokens_are_given else None
        self.servers_may_be_same = servers_may_be_same
        self.masters = [
            Master(
                i, endpoint, tls_contexts[i] if tls_contexts else None, client_name,
                scripts, self.counters, connect_timeout_ns, max_ttl_ns,
                jitter_seed + <uint64_t>i * 0x9E3779B9,
            )
            for i, endpoint in enumerate(endpoints)
        ]
        for master in self.masters:
            self.links[master.index] = self.in_turn[master.index] = &master.link
            master.debts.has_given_tokens = tokens_are_given
        self.master_count = len(self.masters)
        self.quorum = self.master_count // 2 + 1
        exit_watch(self)

    def __del__(self):
        if self.masters is not None and self.generation == current_generation:
            engine_drain(self, clock_ns() + UNDO_NS)

    def __dealloc__(self):
        buffer_free(&self.command)

    @property
    def master_names(self):
        """The masters' names in configured order, without user or password."""
        return tuple([(<Master>master).name for master in self.masters])

    @property
    def states(self):
        """Where each connection stands: (MasterState, reason it is not READY)."""
        return tuple([master_standing(master) for master in self.masters])

    @property
    def late_us(self):
        """Per master: the time of its last reply that missed its deadline, else 0."""
        return tuple([(<Master>master).late_us for master in self.masters])

    @property
    def turns(self):
        """The masters' indices, in the order of writing and reading."""
        return tuple([
            i for place in range(self.master_count) for i in range(self.master_count)
            if self.in_turn[place] == self.links[i]
        ])

    @property
    def use_count(self):
        """How many uses of given tokens are remembered."""
        return 0 if self.uses is None else len(self.uses)

    def health(self):
        """Per master: (name, MasterState, reason or last error, Facts, ServerClock,
        its last round trips in us, sorted)."""
        return tuple([master_health(master) for master in self.masters])

    def new_round(self, int operation, bytes resource not None, bytes token not None,
                  Terms terms not None):
        """Make a round of this engine's masters; nothing is sent yet."""
        return Round(operation, resource, token, terms, self.master_count)

    def new_connecting(self):
        """Make a round that asks nothing: it ends when all connections are decided."""
        cdef Round round = Round(
            OPERATION_INSPECT, b"-", b"-", Terms(0, 0, 0), self.master_count
        )
        round.is_connecting = True
        round.left_ns = -1
        return round

    def new_round_of_all(self, int operation, tuple keys not None,
                         bytes token not None, Terms terms not None):
        """Make a round of several keys, sorted and distinct: of all or of none."""
        cdef Round round
        check_keys(keys)
        if operation == OPERATION_INSPECT:
            raise ValueError("keys are inspected one by one")
        round = Round(operation, keys[0], token, terms, self.master_count)
        round.keys = keys
        return round

    def new_extension(self, Round lease not None, Terms terms not None):
        """Make the round that extends what an ACQUIRE round took."""
        cdef Round extension = Round(
            OPERATION_EXTEND, lease.resource, lease.token, terms, self.master_count
        )
        extension.keys = lease.keys
        extension.uses = lease.uses
        return extension

    def new_release(self, Round lease not None, Terms terms not None):
        """Make the round that releases what an ACQUIRE round took."""
        cdef Round release = Round(
            OPERATION_RELEASE, lease.resource, lease.token, terms, self.master_count
        )
        release.keys = lease.keys
        release.may_hold = lease.may_hold
        release.uses = lease.uses
        return release

    def new_adopted(self, bytes resource not None, bytes token not None,
                    Terms terms not None):
        """Make an ACQUIRE round for a key that another process took."""
        cdef Round adopted = Round(
            OPERATION_ACQUIRE, resource, token, terms, self.master_count
        )
        adopted.may_hold = ~<uint64_t>0 >> (MAX_MASTERS - self.master_count)
        return adopted

    def new_adopted_of_all(self, tuple keys not None, bytes token not None,
                           Terms terms not None):
        """Make an ACQUIRE round for several keys that another process took."""
        cdef Round adopted = self.new_round_of_all(
            OPERATION_ACQUIRE, keys, token, terms
        )
        adopted.may_hold = ~<uint64_t>0 >> (MAX_MASTERS - self.master_count)
        return adopted


cdef int engine_asked_count(Engine self, int operation, int64_t now_ns) noexcept:
    # How many masters a round would be sent to now. A READY one that the restart guard
    # withholds is not among them: to wait for another one is worth while.
    cdef Master master
    cdef int count = 0
    for master in self.masters:
        count += master.state_code == MASTER_READY and (
            operation != OPERATION_ACQUIRE or now_ns >= master.votes_from_ns
        )
    return count


cdef int engine_opening_count(Engine self) noexcept:
    cdef int count = 0, state
    for master in self.masters:
        state = (<Master>master).state_code
        count += state == MASTER_CONNECTING or state == MASTER_HANDSHAKE
    return count


cdef int engine_open_due(Engine self, bint is_urgent, int64_t now_ns) except -1:
    # Begin to connect to every master that is not connected and whose time has come;
    # where a quorum is missing, back-off gives way to a short spacing.
    cdef Master master
    for master in self.masters:
        if master_is_due(master, is_urgent, now_ns):
            engine_open(self, master, now_ns)
    return 0


cdef int engine_open(Engine self, Master master, int64_t now_ns) except -1:
    if self.by_hand is not None:
        master_begin_connect(master, now_ns)
        self.by_hand.append(master.index)
    else:
        master_open(master, now_ns)
    engine_note_time(self, master.give_up_at_ns)
    return 0


cdef int engine_queue(
    Engine self, Round round, uint64_t masters, bint by_source, int64_t now_ns
) except -1:
    # Queue the round's command for the given set of masters; t0 is now_ns.
    # The buffer is taken, not borrowed: making a vote may collect garbage, and a
    # finalizer that takes a lock comes through here before this one is done.
    cdef Buffer command = self.command
    memset(&self.command, 0, sizeof(Buffer))
    round_open(round, now_ns)
    engine_note_time(self, round.deadline_ns)
    try:
        if command_of_round(&command, round, self.scripts, by_source, False) != 0:
            raise MemoryError
        engine_queue_on(self, round, masters, &command, by_source, now_ns)
    finally:
        buffer_free(&self.command)
        buffer_consume(&command, buffer_length(&command))
        self.command = command
    return 0


cdef int engine_queue_on(
    Engine self, Round round, uint64_t masters, Buffer *command, bint by_source,
    int64_t now_ns,
) except -1:
    cdef Master master
    cdef Owed entry = owed_vote(NEVER_NS, False)
    entry.is_by_source = by_source
    for master in self.masters:
        if not (masters >> master.index) & 1:
            continue
        if master.state_code == MASTER_READY and (
            debts_are_full(master.debts, master.heard_ns, now_ns)
        ):
            master_on_lost(
                master, f"owes {master.debts.count} replies and is silent", now_ns
            )
        if master.state_code == MASTER_READY:
            if engine_is_withheld(master, round, now_ns):
                engine_withhold(master, round, now_ns)
                continue
            if by_source and not master.may_eval:
                master_send_again(master, round, owed_vote(NEVER_NS, False), now_ns)
            else:
                master_send(master, round, command, entry, now_ns)
            if (
                master.state_code == MASTER_READY
                and now_ns - master.clock.asked_at_ns > <int64_t>CLOCK_EVERY_NS
            ):
                master_ask_time(master, now_ns)
            continue
        master_on_unsent(master, round, entry, now_ns)
    return 0


cdef int engine_ask_again(Engine self, Master master, int64_t now_ns) except -1:
    # Rounds are open whose connection to this master is gone: connect at once, and ask
    # again as soon as it is READY.
    cdef Round round
    if master.state_code == MASTER_READY:
        for round in tuple(master.debts.unanswered):
            if engine_is_withheld(master, round, now_ns):
                engine_withhold(master, round, now_ns)
        return master_send_unanswered(master, now_ns)
    if master_is_due(master, False, now_ns):
        return engine_open(self, master, now_ns)
    return 0


cdef bint engine_is_withheld(Master master, Round round, int64_t now_ns) noexcept:
    return (
        now_ns < master.votes_from_ns and round.operation_code == OPERATION_ACQUIRE
    )


cdef int engine_withhold(Master master, Round round, int64_t now_ns) except -1:
    # The restart guard: this master may have forgotten its votes, so it gets none.
    if round.verdict_code != VERDICT_OPEN:
        return 0
    text = guard_text(master.guard, master.facts, master.ready_at_ns, now_ns)
    return round_on_vote(round, master.index, VOTE_FAILED, text, False, now_ns)


cdef int engine_on_news(Engine self, Master master, int64_t now_ns) except -1:
    # A master has become READY, its clock jumped, or it refused: look at it once.
    cdef Master other
    master.is_news = False
    if master.clock.step_ns:
        step_s = master.clock.step_ns / 1e9
        engine_warn(self, master, f"its clock jumped by {step_s:+.3f} s")
    complaints, master.complaints = master.complaints, []
    for text in master.facts.warnings() + complaints:
        engine_warn(self, master, text)
    refusal = master.facts.refusal()
    for other in self.masters:
        if (
            other is not master and other.state_code == MASTER_READY
            and master.identity is not None and other.identity == master.identity
            and not engine_may_share(self, master, other)
        ):
            refusal = f"is the same server as {other.name}: one server has one vote"
            if master.facts.run_id is None or other.facts.run_id is None:
                refusal += " (or has a copy of its data: grant +info to tell)"
    if refusal is not None and master.state_code == MASTER_READY:
        engine_warn(self, master, refusal)
        return master_on_lost(master, refusal, now_ns)
    return 0


cdef bint engine_may_share(Engine self, Master master, Master other) except -1:
    # Databases of one server, where a replaced library took them.
    if not self.servers_may_be_same or other.settings.db == master.settings.db:
        return False
    if other.settings.server != master.settings.server:     # else it was said before
        engine_warn(
            self, master,
            f"is the same server as {other.name}: its databases fail together",
        )
    return True


cdef int engine_warn(Engine self, Master master, str text) except -1:
    if (master.name, text) not in self.warnings:
        self.warnings.append((master.name, text))
    return 0


cdef int engine_start(Engine self, Round round, int64_t now_ns) except -1:
    # A finalizer may run while connections or votes are made for a round, and take
    # another thread's request to withdraw it: then it has been opened, or must not be,
    # and behind its roll-back nothing of it may be left standing.
    if round.is_opened or round.is_finished:
        return 0
    self.counters.rounds += 1
    round.is_inner = self.crowd.depth > 1
    turns_take(self.in_turn, self.links, self.master_count, self.counters.rounds)
    if self.uses is not None and round.operation_code <= OPERATION_RELEASE:
        engine_start_given(self, round, now_ns)
    else:
        engine_queue(self, round, <uint64_t>-1, False, now_ns)
    if round.is_rolled_back:
        round.is_rolled_back = False
        return engine_roll_back(self, round, now_ns)
    return 0


cdef int engine_roll_back(Engine self, Round round, int64_t now_ns) except -1:
    # Queue the release behind the SETs, to every master that did not refuse. Nobody
    # waits for its replies: each pops its entry when it comes. So it has its script
    # with it: NOSCRIPT would be read by the next call, if there is one.
    cdef Round release
    if (
        round.operation_code != OPERATION_ACQUIRE
        or round.is_rolled_back or not round.may_hold
        or round.generation != current_generation    # the parent's, who may hold it
        or round_is_overused(round)
    ):
        return 0
    round.is_rolled_back = True
    self.counters.rolled_back += 1
    release = self.new_release(round, round.terms)
    if release.uses is not None:
        uses_note(release)
    return engine_queue(self, release, release.may_hold, True, now_ns)


cdef int engine_on_closed(Engine self, Round round, int64_t now_ns) except -1:
    cdef int verdict
    round_confirm(round, now_ns)
    verdict = round.verdict_code
    if verdict == VERDICT_WON:
        self.counters.won += 1
    elif verdict == VERDICT_TAKEN:
        self.counters.taken += 1
    elif verdict == VERDICT_UNREACHABLE:
        self.counters.unreachable += 1
    else:
        self.counters.too_late += 1
    if verdict != VERDICT_UNREACHABLE and not (round.needs_all or round.is_withheld):
        engine_learn_round_trip(self, round.closed_ns - round.opened_ns)
    if verdict != VERDICT_WON:
        engine_roll_back(self, round, now_ns)
    return 0


cdef void engine_learn_round_trip(Engine self, int64_t took_ns) noexcept:
    if self.round_trip_ns == 0:
        self.round_trip_ns = took_ns
    else:      # an eighth of the news, as TCP smooths its round trips (RFC 6298)
        self.round_trip_ns += (took_ns - self.round_trip_ns) // 8


cdef int engine_forget_connections(Engine self, int64_t now_ns) except -1:
    # close(2) all and start anew: after a fork, and at the end. What the connections
    # owed is nobody's any more; a forked child has none of its parent's leases.
    cdef Master master
    for master in self.masters:
        link_close(&master.link)
        master.feed = master.gets = master.handshake = None
        master.addresses = master.tls = None
        master_set_state(master, MASTER_CLOSED)
        master_explain(master, "closed" if self.is_closed else "not connected yet")
        master.failures = 0
        debts_fail(master.debts, master.reason, False, now_ns)
        debts_fail_unanswered(master.debts, master.reason, now_ns)
        master.debts.carried = []
        master.debts.carried_bytes = 0
        master.client_id = 0
        master.lost_ids = []
    return 0


cdef int engine_forget_but_carry(Engine self, str reason, int64_t now_ns) except -1:
    # The same, but what it owes goes on the next connections.
    cdef Master master
    for master in self.masters:
        master_note_lost(master)
        debts_fail(master.debts, reason, False, now_ns)
    carried = [(<Master>master).debts.carried for master in self.masters]
    lost_ids = [(<Master>master).lost_ids for master in self.masters]
    engine_forget_connections(self, now_ns)
    for master, releases, ids in zip(self.masters, carried, lost_ids):
        master.debts.carried = releases
        master.lost_ids = ids
    return 0
