# The N masters, and what belongs to all of them: the engine.
#
# The class comes after all that its methods call; its fields are those of the stages.

# --- keys -----------------------------------------------------------------------------
# What a caller names, as the masters know it: a round of it, and what is known of it.


cdef inline object engine_keys(Engine self, object keys):
    # Return what the caller names, as the masters know it.
    cdef bint is_semaphore = type(keys) is Permits
    if is_semaphore:
        keys = (<Permits>keys).name
    elif type(keys) is Shared:
        keys = (<Shared>keys).name
    # If the tokens are the caller's, it may be the name of another library's lock.
    if self.has_slots and (is_semaphore or self.token_uses is None):
        keys = routes_name(keys) if type(keys) is bytes else (
            tuple(sorted([routes_name(key) for key in keys]))
        )
    if self.key_prefix is not None and type(keys) is tuple:      # sorted as before
        keys = tuple([self.key_prefix + <bytes?>key for key in keys])
    elif self.key_prefix is not None:
        keys = self.key_prefix + <bytes?>keys
    if self.has_slots:
        refusal = routes_refusal(keys)
        if refusal is not None:
            raise self.key_error(refusal)
    return keys


cdef Round engine_new_round(
    Engine self, int operation, object keys, bytes token, Terms terms
):
    cdef Round round
    name = key = engine_keys(self, keys)
    if type(name) is tuple:
        check_keys(name)
        if operation == OPERATION_INSPECT:
            raise ValueError("keys are inspected one by one")
        key = name[0]
    elif terms.idle_ns and operation == OPERATION_ACQUIRE and type(keys) is bytes:
        token = b"~" + self.queues.waiter + b"~" + token      # whom to recall
    round = round_new(operation, key, token, terms, self.electorate)
    if type(name) is tuple:
        round_set_kind(round, KIND_SEVERAL, name, 0)
    elif type(keys) is Permits:
        round_set_kind(round, KIND_SLOT, None, (<Permits>keys).count)
    elif type(keys) is Shared:
        round_set_kind(round, KIND_SHARED, None, 0)
    return round


cdef bint engine_has_no_slot(Engine self, Permits permits, int64_t now_ns) except -1:
    # Return whether each slot counts as taken.
    cdef Slots slots = self.queues.slots.get(engine_keys(self, permits))
    return slots is not None and slots_choose(slots, permits.count, 0, now_ns) < 0


cdef bint engine_is_contended(Engine self, object keys, int64_t now_ns) except -1:
    if not (self.queues.by_resource or self.queues.contended_ns) and (
        type(keys) is not Permits
    ):
        return False
    name = engine_keys(self, keys)
    return (
        name in self.queues.by_resource
        or type(keys) is Shared and READERS + <bytes>name in self.queues.by_resource
        or wait_queues_are_until(self.queues.contended_ns, name, now_ns)
        or type(keys) is Permits and engine_has_no_slot(self, <Permits>keys, now_ns)
    )


# --- engine ---------------------------------------------------------------------------


@cython.final
cdef class Engine:
    """The connections to N masters, shared by all threads of this process."""

    cdef readonly Counters counters
    cdef NextDue due
    cdef Conditions conditions
    cdef readonly list unlogged            # for the log: (level, master's name, text)
    cdef list to_prepare                   # connections: their threads begin behind
    #                                        this pass
    cdef readonly bint is_closed
    cdef readonly uint32_t generation      # of the process that opened the connections
    cdef readonly int64_t round_trip_ns    # smoothed time of a round, 0 before any
    cdef readonly int64_t shortest_round_trip_ns      # of all rounds so far, likewise
    cdef list masters                      # by vote, as configured
    cdef int vote_count
    cdef int gate_order[MAX_MASTERS]       # votes of the first list, by address (gate)
    cdef int gate_count
    cdef list connections                  # by place: first the masters' own, by vote
    cdef int connection_count
    cdef Link *links[MAX_MASTERS]          # by place
    cdef pollfd polled[MAX_MASTERS + 1]    # and the waker
    cdef public bint has_slots             # some are clusters: also in memory
    cdef object key_error                  # what a name raises that these cannot have
    cdef readonly Electorate electorate    # the masters as configured
    cdef int64_t started_ns                # when the last round was
    cdef Scripts scripts
    cdef bytes key_prefix                  # of all keys; None: they are the resources
    cdef Buffer command                    # reused by the next one to be queued
    cdef int64_t connect_timeout_ns
    cdef int64_t polled_at_ns              # when the sockets were last looked at
    cdef int64_t polled_before_ns          # and the time before
    cdef bint is_draining                  # has its own patience (drain)
    cdef dict admissions                   # Round: Admission; they wait for connections
    cdef list closed                       # rounds with a verdict, to be finished...
    cdef list held                         # ...and those with replies to be read yet
    cdef list opened                       # rounds whose turn it is, to be admitted
    cdef list to_send                      # rounds that are open, to be sent
    cdef list batches                      # whose next rounds are to be admitted
    cdef bint is_notifying                 # queued bytes notify another process: flush
    #                                        them before waking a task
    cdef bint is_asking                    # ...or have released natively at a gate
    cdef bint has_events                   # not all are taken that a poll has found
    cdef bint has_batch                    # queued: more than sockets take at once
    cdef bint has_tls                      # some connection may be encrypted
    cdef list by_hand                      # driven by hand: masters to connect; or None
    cdef Leadership leadership             # the threads that share this engine
    cdef bint servers_may_be_same          # compat: databases of one server
    cdef WaitQueues queues                 # of rounds that wait for their turn
    cdef TokenSource token_source          # of rounds that drew none; or None
    cdef int64_t quorum_lost_ns            # when; 0: there is one, as far as is known
    cdef TokenUses token_uses              # None: tokens are our own
    cdef Fences fences                     # numbers of grants
    cdef readonly IdleKeys idle            # keys
    cdef public int64_t cohort_ns          # how long a lease is handed on; 0: never
    cdef public int64_t wall_offset_ns     # by hand: wall clock - now_ns
    cdef object driver                     # of the event loop that drives it, or None
    cdef public object foreign             # the shell's: what it knows of foreign keys
    cdef object __weakref__

    def __cinit__(self):
        self.leadership = Leadership()
        self.counters = Counters()
        self.due = NextDue()
        self.conditions = Conditions()
        self.unlogged = []
        self.to_prepare = []
        self.admissions = {}
        self.idle = IdleKeys()
        self.closed = []
        self.held = []
        self.opened = []
        self.to_send = []
        self.batches = []

    def __init__(
        self, endpoints, Scripts scripts not None, int64_t connect_timeout_ns,
        tuple tls_contexts=(), int64_t max_ttl_ns=0,
        bytes client_name=b"fastredlock", uint64_t jitter_seed=0,
        bint tokens_are_given=False, bint servers_may_be_same=False,
        tuple preparers=(), bytes key_prefix=None, key_error=ValueError,
        Electorate electorate=None, Lists lists=None,
    ):
        cdef Master master
        cdef int vote
        if self.masters is not None:
            raise RuntimeError("an engine is initialised once")
        if not 0 < len(endpoints) <= MAX_MASTERS:
            raise ValueError(f"1 to {MAX_MASTERS} masters, not {len(endpoints)}")
        jitter_seed = jitter_seed or <uint64_t>int(draw_token()[:16], 16)
        self.scripts = scripts
        self.key_prefix = key_prefix or None
        self.connect_timeout_ns = connect_timeout_ns
        self.generation = current_generation
        self.token_uses = TokenUses() if tokens_are_given else None
        self.servers_may_be_same = servers_may_be_same
        self.has_tls = any(tls_contexts) or any(preparers)
        self.queues = wait_queues_new(b"%016x" % jitter_seed)
        self.fences = Fences()
        self.masters = []
        self.connections = []
        self.vote_count = <int>len(endpoints)
        self.electorate = electorate or Electorate(self.vote_count)
        if self.electorate.count != self.vote_count:
            raise ValueError("an electorate of other masters")
        self.gate_count = bit_count(self.electorate.first)
        for vote, endpoint in enumerate(endpoints):
            master = Master(
                vote, endpoint, tls_contexts[vote] if tls_contexts else None,
                client_name, scripts, connect_timeout_ns, max_ttl_ns,
                preparers[vote] if preparers else None, self.queues.leaving,
                lists, self.counters, self.due, self.conditions, self.unlogged,
                self.to_prepare,
            )
            self.masters.append(master)
            connection_of(master, jitter_seed + <uint64_t>vote * 0x9E3779B9)
            connections_add(self, master.connection)
        gate_rank(self)
        self.key_error = key_error
        routed = [master.routes for master in self.masters if master.routes]
        self.has_slots = len(routed) > 0
        for routes in routed:
            (<Routes>routes).most = (MAX_MASTERS - self.vote_count) // len(routed)
        interpreter_exit_watch(self)

    def __del__(self):
        if self.masters is not None and self.generation == current_generation:
            blocking_drain_all(self, drain_of_close(self, DROPPED_NS))

    def __dealloc__(self):
        # Sockets are closed at once, not by the garbage collector.
        for master in self.masters or ():
            master_part(<Master>master)
        buffer_free(&self.command)

    @property
    def master_names(self):
        """The masters' names in configured order, without user or password."""
        return tuple([(<Master>master).name for master in self.masters])

    @property
    def warnings(self):
        """What can lose locks, as far as is known: (master's name, text), each once."""
        return connection_warnings(self.connections)

    def take_unlogged(self):
        """Return the lines for the log, and forget them."""
        taken = []
        while self.unlogged:      # a slice is made of what a collection may change
            taken.append(self.unlogged.pop(0))
        return taken

    @property
    def next_ns(self):
        """Nothing is due before."""
        return self.due.at_ns

    @property
    def is_awaited(self):
        """Whether an event loop drives it, or no call of it waits for sockets."""
        return self.driver is not None or self.by_hand is not None

    @property
    def states(self):
        """The state of each connection: (MasterState, reason it is not READY)."""
        cdef Connection connection
        return tuple([
            (MasterState(connection.state_code), connection.reason)
            for connection in [nodes_worst(master) for master in self.masters]
        ])

    @property
    def faults(self):
        """Per master: the time (us) of its last reply that missed its deadline, else 0;
        why its last connection ended, or ""."""
        return tuple([
            ((<Master>master).late_us, nodes_worst(master).last_error)
            for master in self.masters
        ])

    def may_wait_in_turn(self, keys not None, int64_t now_ns):
        """Whether a round of this key, or of these, can wait in a queue of each."""
        name = engine_keys(self, keys)
        return all([
            gate_master(self, <bytes>key, now_ns) >= 0
            and not wait_queues_are_until(self.queues.polled_ns, key, now_ns)
            for key in (name if type(name) is tuple else (name,))
        ])

    def is_contended(self, keys not None, int64_t now_ns):
        """Whether others were seen to wait for this key, now or in the last second."""
        return engine_is_contended(self, keys, now_ns)

    def health(self):
        """Per master: (name, MasterState, reason or last error, ServerInfo,
        ServerClock, its last round trips in us, sorted, whether it has been silent
        since the last deadline, from when on it may vote, its refusal of the last
        write and until when that counts, when its last connection ended, since when it
        is away or takes no locks, why the restart guard withholds it)."""
        now_ns = clock_ns()
        return tuple([
            connection_health(nodes_worst(master), now_ns) for master in self.masters
        ])

    @property
    def figures(self):
        """Per master: (name, granted, taken, failed, silent, late replies, connects,
        losses, releases dropped)."""
        return tuple([master_figures(master) for master in self.masters])

    def new_round(self, int operation, keys not None, bytes token not None,
                  Terms terms not None, int attempt=0, int64_t began_ns=0,
                  int64_t left_ns=0):
        """Make a round of one key, or of all of several, sorted and distinct, with the
        key_prefix in front of each; nothing is sent yet. `attempt`: its number within
        an acquire that began at `began_ns` and has `left_ns` left."""
        cdef Round round
        round_check_operation(operation)
        round = engine_new_round(self, operation, keys, token, terms)
        round_set_caller(round, attempt, began_ns, left_ns)
        return round

    def new_inspection(self, Round round not None):
        """Make an INSPECT round of another round's key, with its terms."""
        return round_new(
            OPERATION_INSPECT, round.resource, b"-", round.terms, self.electorate
        )

    def has_no_slot(self, Permits permits not None, int64_t now_ns):
        """Whether each slot counts as taken, as far as is known."""
        return engine_has_no_slot(self, permits, now_ns)

    def may_pass(self, Round round not None, int64_t until_ns):
        """Whether what has kept a quorum from its votes in a round is announced as
        passing, and no quarantine of it is longer than until then."""
        cdef Master master
        cdef int64_t withheld_until_ns
        cdef uint64_t passing = 0
        cdef bint is_passing
        for master in self.masters:
            text = None if round.details is None else round.details[master.vote]
            withheld_until_ns = (
                master_connection(master, round.resource).restart_guard.until_ns
            )
            if round.closed_ns < withheld_until_ns:
                is_passing = withheld_until_ns <= until_ns
            else:
                is_passing = not set_has(round.failed, master.vote) or (
                    type(text) is str and text_is_passing(<str>text)
                )
            passing |= set_of(master.vote) if is_passing else 0
        return electorate_wins(self.electorate, passing)

    def new_inspections(self, Permits permits not None, Terms terms not None):
        """Make a batch of INSPECT rounds: of a semaphore's slots, and of its queue's
        name, which no slot has."""
        cdef int slot
        name = engine_keys(self, permits)
        keys = [slot_key(name, slot) for slot in range(permits.count)]
        return Batch([
            round_new(OPERATION_INSPECT, key, b"-", terms, self.electorate)
            for key in (*keys, name)
        ])

    def new_connecting(self):
        """Make a round that asks nothing: it ends when all connections are decided."""
        cdef Round round = round_new(
            OPERATION_INSPECT, b"-", b"-", Terms(0, 0, 0), self.electorate
        )
        round_set_connecting(round, False, -1)
        return round

    def new_ping(self, bytes key not None, Terms terms not None, int64_t left_ns):
        """Make a round that asks each master whether it would vote now, by a SET of
        the key for terms.ttl_ms. It connects to all that are not, also in back-off. It
        ends after left_ns at the latest; connections get what terms.timeout_ns leaves
        of that."""
        cdef Round round = self.new_round(OPERATION_INSPECT, key, b"-", terms)
        round_set_connecting(round, True, left_ns)
        return round

    def new_extension(self, Round lease not None, Terms terms not None):
        """Make the round that extends what an ACQUIRE round took."""
        return round_new_extension(lease, terms)

    def new_release(self, Round lease not None, Terms terms not None):
        """Make the round that releases what an ACQUIRE round took: from now on no
        extension of it is sent."""
        return round_new_release(lease, terms, lease.may_hold)

    def new_adopted(
        self, keys not None, bytes token not None, Terms terms not None,
        int64_t fence=0, int64_t now_ns=0,
    ):
        """Make an ACQUIRE round for what another process took. fence: its number; 0:
        not known. now_ns: when it was adopted."""
        cdef Round adopted = self.new_round(OPERATION_ACQUIRE, keys, token, terms)
        round_on_adopted(adopted, token, fence, now_ns)
        if self.token_uses is not None:
            token_uses_take(self.token_uses, adopted, now_ns)
            token_uses_hold(adopted, now_ns)
        return adopted


def new_acquires(Engine engine not None, list keys not None, Terms terms not None,
                 list tokens not None, int64_t began_ns=0):
    """Make a batch of ACQUIRE rounds, one per key, each with its token, whose caller
    began at began_ns."""
    cdef Py_ssize_t i
    cdef Round round
    cdef list rounds = []
    for i in range(len(keys)):
        round = round_new(
            OPERATION_ACQUIRE, engine_keys(engine, keys[i]), tokens[i], terms,
            engine.electorate,
        )
        if type(keys[i]) is Shared:
            round.kind = KIND_SHARED
        round_set_caller(round, 1, began_ns, 0)
        rounds.append(round)
    return Batch(rounds)
