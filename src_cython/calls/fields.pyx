# The fields of drivers and leases, where C makes and reads them, and those of leases
# that are kept. All else of these classes is Python (fastredlock/_locking).

# --- fields ---------------------------------------------------------------------------

cdef extern from "Python.h":
    ctypedef struct PyThreadState:
        pass
    Py_ssize_t Py_REFCNT(PyObject *)
    int PyErr_ResourceWarning(object, Py_ssize_t, const char *, ...) except -1
    PyThreadState *PyThreadState_Get()
    uint64_t PyThreadState_GetID(PyThreadState *tstate)
    ctypedef struct MadeType "PyTypeObject":
        object (*tp_new)(MadeType *, object, PyObject *)
    int PY_VERSION_HEX
    object PyContextVar_New(const char *name, PyObject *default)
    int PyContextVar_Get(object var, PyObject *default, PyObject **value) except -1
    object PyContextVar_Set(object var, object value)


cdef bint EXIT_MAY_BE_DROPPED = PY_VERSION_HEX >= 0x030E0000      # uncalled: see blocks
cdef object blocks_var = PyContextVar_New(b"fastredlock.blocks", NULL)


cdef extern from *:
    ctypedef class _weakref.ReferenceType [object PyWeakReference]:
        pass


@cython.final
cdef class Block(ReferenceType):
    """A weak reference to the lease of a block that was entered, and by whom."""

    cdef readonly object caller
    cdef int count               # of those not left: itself, and what joined it


cdef class Registered:
    """The base of what is found by `registered` as long as it is there."""

    cdef PyObject *before        # the one that was made before it, and...
    cdef PyObject *behind        # ...behind it

    def __cinit__(self):
        global last_registered
        self.before = last_registered
        if last_registered != NULL:
            (<Registered>last_registered).behind = <PyObject *>self
        last_registered = <PyObject *>self

    def __dealloc__(self):
        global last_registered
        if self.before != NULL:
            (<Registered>self.before).behind = self.behind
        if self.behind != NULL:
            (<Registered>self.behind).before = self.before
        else:
            last_registered = self.before


cdef PyObject *last_registered = NULL


def registered(kinds not None):
    """List the clients, lock objects and leases of this process that are of the kinds.

    They are no garbage yet: one whose last reference has gone is not among them.
    """
    cdef list found = []
    cdef PyObject *at = last_registered
    while at != NULL:      # nothing here makes an object that may be collected
        if Py_REFCNT(at) > 0:      # else it ends now, and its weak references go
            found.append(<object>at)
        at = (<Registered>at).before
    return [each for each in found if isinstance(each, kinds)]


cdef class DriverFields:
    """The fields of a driver: what the calls of one FastRedlock share."""

    cdef object __weakref__              # a keeper that sleeps has no other
    cdef public object settings
    cdef public Engine engine
    cdef public object keeper            # of the leases that are kept, or None
    cdef public ObserverHooks observer   # notified at the end of each call
    cdef public object current           # AsyncioDriver of its loop; None: it blocks
    cdef readonly dict entered           # by key, the last Block that was not left
    cdef dict permits                    # by name, once a semaphore was taken; 0: lock
    cdef public bint runs_in_core        # False: bytes and clock are its own
    cdef Terms default_terms             # of the settings, which do not change
    cdef tuple last_terms                # (ttl, its Terms): most callers give one ttl
    cdef TokenSource token_source        # likewise; None: the caller's function
    cdef bint waits_in_turn              # likewise

    blocks = True        # its calls run to their end in the thread that makes them

    def __init__(self, settings, Engine engine not None):
        self.settings = settings
        self.engine = engine
        self.observer = no_observer
        self.entered = {}
        self.default_terms = settings.default_terms
        self.last_terms = None, self.default_terms
        self.waits_in_turn = settings.retry.waits_in_turn
        self.token_source = engine.token_source = settings.token_source
        self.runs_in_core = True

    def run(self, work):
        """Run a round or a batch until it is closed; a lost one is rolled back.

        Blocks. Raises FastRedlockError after close(). An exception of a signal handler
        rolls all back.
        """
        work_check(work)
        fields_run(self, work)

    def caller(self):
        """Return the task, greenlet or thread that calls; None: none is known."""
        return calling_thread()

    def entered_here(self):
        """List the leases of the blocks that the caller is in, the innermost first."""
        cdef Block block
        cdef list leases = []
        blocks = context_blocks()
        caller = self.caller() if blocks else None
        for block in reversed(blocks):
            lease = block()
            if block_is_open(block) and (
                (<LeaseFields>lease)._driver is self and block.caller == caller
            ):
                leases.append(lease)
        return leases

    # A lease reads its clock and its process here: drivers of tests have their own.

    def now_ns(self):
        return clock_ns()

    def fork_generation(self):
        return current_generation


cdef int fields_run(DriverFields self, object work) except -1:
    try:
        if blocking_run_work(self.engine, work) > 0:
            self.log_warnings()
    except (ClosedError, StateError) as error:
        self.refuse(error)


cdef class LocksFields(Registered):
    cdef public DriverFields _driver
    cdef object __weakref__


cdef class LockFields(Registered):
    """The base of a lock object: the leases of its blocks that were not left."""

    cdef readonly list _entries      # the last one last

    def __cinit__(self):
        self._entries = []


cdef class BlockExit:
    """What a with statement has found as `__exit__`, and calls at its end."""

    cdef object of               # a lock, or a lease
    cdef LeaseFields lease       # of its block, once that was entered

    def __dealloc__(self):
        global exit_looked_up
        if exit_looked_up == <PyObject *>self:
            exit_looked_up = NULL


# The last one. Nothing runs between a statement's look-ups and its call of `__enter__`.
cdef PyObject *exit_looked_up = NULL


cdef BlockExit block_exit(object entered):
    # Return that of the statement that calls `__enter__` now; None: there is none.
    global exit_looked_up
    cdef PyObject *found = exit_looked_up
    exit_looked_up = NULL
    if found != NULL and (<BlockExit>found).of is entered:
        return <BlockExit>found
    return None


cdef enum:
    SHOWN_LENGTH = 200       # of a resource

cdef object STATUS_RELEASED, STATUS_GONE, STATUS_UNKNOWN      # how a release ends


def set_ends(*statuses):
    """Take the members of ReleaseStatus, which is the shell's."""
    global STATUS_RELEASED, STATUS_GONE, STATUS_UNKNOWN
    STATUS_RELEASED, STATUS_GONE, STATUS_UNKNOWN = statuses


cdef class LeaseFields(Registered):
    cdef public object resource
    cdef public object _driver      # which its release needs; nothing else keeps it
    cdef public Round _round        # that took it
    cdef public object _status      # None until a release was begun
    cdef readonly Block _block      # that was entered by it, or None
    cdef object __weakref__

    def __init__(self, driver, resource, Round round not None):
        self._driver = driver
        self.resource = resource
        self._round = round

    def _new_release(self):
        return fields_new_release(self)

    @property
    def _valid_until_ns(self):
        return 0 if self._status is not None else fields_until_ns(self)

    def __del__(self):
        # It asks the clock alone: another thread may be inside of the engine.
        if self._status is None and fields_is_dropped(self):
            text = f"{repr(self.resource)[:SHOWN_LENGTH]}: its lease is dropped while"
            text += " it is valid, and was not released: its key remains for its ttl"
            text += " (use `with`, or release it)"
            PyErr_ResourceWarning(self, 1, "%U", <PyObject *>text)


cdef inline int64_t fields_now_ns(DriverFields driver) except -1:
    return clock_ns() if driver.runs_in_core else driver.now_ns()


cdef Terms fields_terms(DriverFields driver, object ttl):
    cdef tuple last = driver.last_terms
    if ttl is not last[0]:
        last = ttl, <Terms?>driver.settings.terms(ttl)
        driver.last_terms = last
    return <Terms>last[1]


cdef Round fields_new_release(LeaseFields lease):
    # Its release; of a lease that stays (at_least), what lets its key expire by then.
    cdef Round grant = lease._round, last
    cdef ValidityFields validity = grant.lease_state
    cdef int64_t left_ns = 0
    if validity is None:
        return round_new_release(grant, grant.terms, grant.may_hold)
    if validity.stays_until_ns != 0:
        left_ns = validity.stays_until_ns
        left_ns -= fields_now_ns(<DriverFields?>lease._driver)
    if left_ns > 0:
        ttl_ms = -(-left_ns // NS_PER_MS)
        last = round_new_extension(grant, Terms(ttl_ms, 0, grant.terms.timeout_ns))
        last.is_released = True
        return last
    return round_new_release(grant, validity.longest_terms, grant.may_hold)


def running_loop():
    """Return the event loop that runs in this thread, or greenlet; or None.

    Called before a wait and where a block is entered, so a program is refused that
    eventlet has patched since its client was made.
    """
    refuse_eventlet()
    # Another thread may be importing asyncio at this moment.
    asyncio = modules.get("asyncio")
    if asyncio is None:
        return None
    loop = getattr(asyncio, "_get_running_loop", lambda: None)()
    if loop is not None:
        greenlet_hub_caller()      # looks whether the program is patched
        if patching is not None and getattr(loop, "_thread_id", None) not in (
            None, modules["threading"].get_ident()      # then it is the greenlet's
        ):
            return None
    return loop


def calling_thread():
    """Return the calling task, greenlet or thread: a value that no later one equals.

    A task is (the thread, a weak reference). The first greenlet of a thread is it.
    """
    cdef uint64_t thread = PyThreadState_GetID(PyThreadState_Get())
    loop = running_loop()
    task = None if loop is None else modules["asyncio"].current_task(loop)
    if task is None and "trio" in modules:
        try:
            task = modules["trio"].lowlevel.current_task()
        except (AttributeError, RuntimeError):      # half imported; no task
            pass
    if task is not None:
        return thread, PyWeakref_NewRef(task, None)
    current = getattr(modules.get("greenlet"), "getcurrent", None)
    greenlet = None if current is None else current()
    if greenlet is None or greenlet.parent is None:
        return thread
    return PyWeakref_NewRef(greenlet, None)


cdef tuple context_blocks():
    # The outermost one first. Child tasks and copied contexts have them, too; one that
    # is left changes no context, only its own count.
    cdef PyObject *value = NULL
    PyContextVar_Get(blocks_var, NULL, &value)
    if value == NULL:
        return ()
    blocks = <tuple>value
    Py_XDECREF(value)
    return blocks


cdef bint block_is_open(Block block) except -1:
    return block is not None and block.count > 0 and block() is not None


cdef int block_enter(LeaseFields lease, object caller) except -1:
    # Note who has entered a block by a lease: an acquire of the same resource in there
    # would wait for itself.
    cdef Round grant = lease._round
    cdef dict entered = (<DriverFields>lease._driver).entered
    cdef Block block = lease._block
    if not block_is_open(block):
        block = Block(lease)
    block.caller = caller
    blocks = [each for each in context_blocks() if block_is_open(each)]
    PyContextVar_Set(blocks_var, (*blocks, block))
    for key in grant.keys or (grant.resource,):
        entered[key] = block
    lease._block = block
    block.count += 1


cdef bint block_leave(LeaseFields lease) except -1:
    # Return whether no block is left by its lease, so that it is to be released.
    cdef Round grant = lease._round
    cdef Block block = lease._block
    cdef dict entered
    if not block_is_open(block):
        return True      # it was not entered
    block.count -= 1
    if block.count > 0:
        return False
    entered = (<DriverFields>lease._driver).entered
    for key in grant.keys or (grant.resource,):
        if entered.get(key) is block:
            del entered[key]
    return True


cdef int lock_note(
    LockFields self, LeaseFields lease, object caller, BlockExit at_exit
) except -1:
    # Note that a block was entered by it, or has joined another one of this lease.
    if block_is_open(lease._block):
        lease._block.count += 1
    else:
        block_enter(lease, caller)
    self._entries.append(lease)
    if at_exit is not None:
        at_exit.lease = lease


cdef bint lock_forget(
    LockFields self, LeaseFields lease, BlockExit at_exit
) except -1:
    # Return whether no other block is left by the lease.
    if at_exit is not None:
        at_exit.lease = None
    self._entries.remove(lease)
    return block_leave(lease)


cdef enum:
    LEFT_UNKNOWN = -1        # adopted, and not extended since
    NOT_OURS = -2            # released before, or a parent's


cdef int64_t fields_left_ns(LeaseFields lease, DriverFields driver) except? NOT_OURS:
    # The validity that is left, as remaining(); or one of the above.
    cdef int64_t until_ns
    if lease._status is not None or lease._round.generation != current_generation:
        return NOT_OURS
    until_ns = fields_until_ns(lease)
    if until_ns == 0 and not lease._round.is_opened:
        return LEFT_UNKNOWN
    return max(<int64_t>0, until_ns - fields_now_ns(driver))


cdef int64_t fields_until_ns(LeaseFields lease) except -1:
    # The end of the validity; 0 where it is lost, or not known.
    cdef Round grant = lease._round
    if round_is_overused(grant):
        return 0
    if grant.lease_state is not None:      # extended or kept
        return validity_until_ns(<ValidityFields?>grant.lease_state)
    return round_valid_until_ns(grant) if grant.is_opened else 0


cdef bint fields_is_dropped(LeaseFields lease) except -1:
    # Return whether a lease that is collected leaves a key that nobody will release. A
    # kept one ends by that; another process may have a token that was shown, or given.
    cdef Round grant = lease._round
    if grant is None or is_exiting or grant.generation != current_generation or (
        not grant.is_opened or grant.is_released or grant.is_rolled_back
        or grant.is_shown or grant.token_uses is not None or grant.terms.is_of_rate
        or not isinstance(lease._driver, DriverFields)
        or grant.lease_state is not None
        and (<ValidityFields?>grant.lease_state).was_kept
    ):
        return False
    return fields_until_ns(lease) > fields_now_ns(<DriverFields>lease._driver)


cdef int fields_on_block(LeaseFields lease, DriverFields driver, str event) except -1:
    # Notify the observer of a with block, unless it is that of a forked child's parent.
    if driver.observer is not no_observer and (
        lease._round.generation == current_generation
    ):
        observer_notify(driver.observer, event, (lease.resource,))


cdef object fields_lease(type lease_type, object driver, object resource, Round round):
    # Made without a call of its class: that takes 600 instructions, of 20,000 a pair.
    cdef MadeType *made = <MadeType *><PyObject *>lease_type
    cdef LeaseFields lease = <LeaseFields?>made.tp_new(made, (), NULL)
    lease._driver = driver
    lease.resource = resource
    lease._round = round
    return lease


def new_leases(
    type lease_type not None, DriverFields driver not None, list resources not None,
    list rounds not None,
):
    """Make a lease of each round, None of one that was lost; notify of each."""
    cdef Round round
    if driver.observer is not no_observer:
        for resource, round in zip(resources, rounds):
            if round.verdict_code < VERDICT_UNREACHABLE:
                observer_on_acquired(driver.observer, resource, round)
    return [
        None if (<Round>round).verdict_code != VERDICT_WON
        else fields_lease(lease_type, driver, resource, round)
        for resource, round in zip(resources, rounds)
    ]


def begin_releases(DriverFields driver not None, list leases not None):
    """Count each lease as released.

    Returns the rounds to run, None where none is, and what `observe_releases` needs.
    """
    cdef list rounds = [], left_ns = []
    for lease in leases:
        if lease is None:
            left_ns.append(NOT_OURS)
            rounds.append(None)
        else:
            left_ns.append(fields_left_ns(<LeaseFields?>lease, driver))
            rounds.append(fields_begin_release(lease))
    return rounds, left_ns


def observe_releases(
    DriverFields driver not None, list leases not None, list left_ns not None
):
    """Notify the observer of releases that have ended."""
    for lease, left in zip(leases, left_ns):
        if left != NOT_OURS:
            driver.observer.on_end(lease, left)


cdef Round fields_begin_release(LeaseFields lease):
    # That is UNKNOWN from now on, until a quorum has confirmed the release.
    cdef Round grant = lease._round
    if lease._status is not None or grant.lease_state is not None or (
        grant.generation != current_generation
    ):
        return lease._begin_release()
    release = round_new_release(grant, grant.terms, grant.may_hold)
    lease._status = STATUS_UNKNOWN
    return release


# --- validity -------------------------------------------------------------------------
# The record of a lease that was extended or is kept; most leases have none.
#
# An extension is executed at any time after its first write, also where no reply comes,
# and those of several threads arrive in any order. Whatever comes last, the key stays
# from then on for the shortest ttl that is still on its way. So an extension by hand
# counts from its own beginning, for the shortest validity of itself and of all that
# were under way since there was none, or that a master may still execute; and one that
# begins shortens the validity at once.
#
# The renewals of a keeper all ask for the same ttl, so they count in full. While a
# lease is kept, no extension asks for less than that, and none by hand counts.
#
# Threads share a record without a lock, which would stay locked in a child that is
# forked meanwhile: each function here is one step for all others. So what it needs is
# made first, for a collection of garbage may run Python.
#
# The record is the weak reference to its lease, not an object that has one: there are
# thousands of them.


cdef class ValidityFields(ReferenceType):
    """A weak reference to a lease that was extended or is kept, and its times."""

    cdef readonly int64_t validity_ns    # its end; 0: it is not known (adopted)
    cdef readonly set under_way          # extensions; None: none so far
    cdef int64_t least_ns                # of those, the validity that they count for
    cdef readonly set unanswered         # rounds that some masters may still execute
    cdef readonly uint64_t awaited       # masters that may still execute renewals...
    cdef readonly Terms awaited_terms    # ...of this ttl
    cdef readonly Terms terms            # last asked for
    cdef readonly Terms longest_terms    # how long a key can live, confirmed or not
    cdef public int64_t stays_until_ns   # not released before: `at_least` of a lock
    cdef public int64_t until_ns         # from then on not renewed; 0: it is not kept
    cdef public int64_t unknown_until_ns   # adopted: so long its first renewal may take
    cdef public object pace              # of its ttl, once its keeper has looked
    cdef public int64_t due_ns           # when its keeper looks again
    cdef readonly Round renewal          # the last one, or None
    cdef public Round failed             # the last renewal, where it was not confirmed
    cdef public byte_bint was_kept
    cdef public byte_bint is_lost
    cdef byte_bint is_end_noted
    cdef public object error             # by which its loss was reported, or None
    cdef public object on_lost           # to be called then, or None
    cdef public object body              # of an `async with`, to be cancelled then
    cdef public list waiters             # to be called once at its end; None: not yet

    def __cinit__(self, LeaseFields lease not None):
        cdef Round grant = lease._round
        self.validity_ns = round_valid_until_ns(grant) if grant.is_opened else 0
        self.terms = self.longest_terms = grant.terms

    @property
    def valid_until_ns(self):
        """The end of the validity; 0 where it is lost, or was never known."""
        return validity_until_ns(self)

    @property
    def is_kept(self):
        """Whether its keeper renews it, or did until its bound."""
        return self.until_ns != 0

    def take_end(self):
        """Return whether this call is the one that notifies of the end of the lease."""
        was_noted, self.is_end_noted = self.is_end_noted, True
        return not was_noted

    def begin_tables(self):
        """Have the tables of extensions by hand."""
        cdef set under_way = set(), unanswered = set()
        if self.under_way is None:
            self.under_way, self.unanswered = under_way, unanswered

    def begin_extension(self, Round round not None, extension, int64_t now_ns):
        """Count a round that is about to be run; False: kept for a longer ttl.

        The caller takes `extension` out of `under_way` at its end.
        """
        cdef Terms terms = round.terms
        cdef int64_t valid_ns = validity_ns_of(terms)
        cdef Round renewal = self.renewal
        if self.until_ns == 0:
            self.terms = terms
            self.renewal = None      # it counts no more, however it ends
        elif terms.ttl_ms < self.terms.ttl_ms:
            return False
        self.validity_ns = min(self.validity_ns, now_ns + valid_ns)
        if terms.ttl_ms > self.longest_terms.ttl_ms:
            self.longest_terms = terms
        self.least_ns = min(valid_ns, self.least_ns) if self.under_way else valid_ns
        if renewal is not None:
            self.unanswered.add(renewal)
            if renewal.closed_ns == 0:
                self.least_ns = min(self.least_ns, validity_ns_of(renewal.terms))
        self.under_way.add(extension)
        self.unanswered.add(round)
        return True

    def win_extension(self, Round round not None, int64_t most_ns):
        """Let a won round count, from its beginning for so long at most."""
        if self.until_ns == 0:
            self.validity_ns = round.opened_ns + min(most_ns, self.least_ns)

    def end_now(self):
        """End it: an extension by hand has found the lease lost, by a quorum."""
        self.validity_ns = 0

    def begin_keeping(self, int64_t until_ns):
        """Let it be renewed until then, by the shortest ttl that is on its way."""
        cdef Round old
        self.was_kept, self.until_ns = True, until_ns
        if self.unanswered is not None:
            for old in self.unanswered:
                if old.terms.ttl_ms < self.terms.ttl_ms and not is_answered(old):
                    self.terms = old.terms

    def begin_renewal(self, Round round not None, int64_t now_ns):
        """Count a renewal that is about to be run; False: it is kept no longer."""
        self.let_go(self.renewal)
        if self.until_ns == 0 or round.terms is not self.terms:
            return False
        self.renewal = round
        # It may ask for less than the last extension by hand: see `begin_keeping`.
        self.validity_ns = min(self.validity_ns, now_ns + validity_ns_of(round.terms))
        return True

    def let_go(self, Round renewal):
        """Forget one that ended some time ago, but for who has not answered it."""
        if renewal is not None and self.renewal is renewal:
            self.renewal = None
            if renewal.may_hold != 0:
                self.awaited |= renewal.may_hold
                self.awaited_terms = renewal.terms

    def end_renewals(self):
        """Let its keeper renew it no more."""
        self.until_ns, self.renewal = 0, None      # which refers to its lease

    def win_renewal(self, Round round not None):
        """Let a renewal count; False: it was extended by hand meanwhile."""
        if self.renewal is not round:
            return False
        self.validity_ns = round_valid_until_ns(round)
        self.failed = None
        return True


def set_first(owner not None, str name not None, new):
    """Set a field that is None; return what was set first: all get the same."""
    if getattr(owner, name) is None:
        setattr(owner, name, new)
    return getattr(owner, name)


cdef int64_t validity_until_ns(ValidityFields self) noexcept:
    return 0 if self.is_lost else self.validity_ns


cdef inline int64_t validity_ns_of(Terms terms) noexcept:
    return terms.ttl_ms * NS_PER_MS - terms.drift_ns


def is_answered(Round round not None):
    """Return whether no master may execute it any more."""
    return round.may_hold == 0 and (round.is_opened or round.is_finished)
