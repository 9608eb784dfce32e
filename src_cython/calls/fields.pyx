# The fields of drivers and leases, where C makes and reads them, and those of leases
# that are kept. All else of these classes is Python (fastredlock/_locking).

# --- fields ---------------------------------------------------------------------------

cdef extern from "Python.h":
    ctypedef struct PyThreadState:
        pass
    int PyErr_ResourceWarning(object, Py_ssize_t, const char *, ...) except -1
    PyThreadState *PyThreadState_Get()
    uint64_t PyThreadState_GetID(PyThreadState *tstate)
    ctypedef struct PyFrameObject:
        pass
    ctypedef struct MadeType "PyTypeObject":
        object (*tp_new)(MadeType *, object, PyObject *)
    PyFrameObject *PyEval_GetFrame()

cdef extern from *:
    """
    #include <opcode.h>
    #ifdef BEFORE_WITH      /* up to Python 3.13 */
    #define enters_with(code, at) ((code)[at] == BEFORE_WITH)
    #define EXIT_ARGUMENTS 2
    #define loads_exit(code, at) 0
    #define ENTERS_BY_CALL 0
    #else                   /* the call of what LOAD_SPECIAL has found */
    #define enters_with(code, at) \
        ((at) > 1 && (code)[at] == CALL && (code)[(at) - 2] == LOAD_SPECIAL)
    #define EXIT_ARGUMENTS 3
    #define loads_exit(code, at) ((code)[at] == LOAD_SPECIAL && (code)[(at) + 1] == 1)
    #define ENTERS_BY_CALL 1
    #endif
    #define leaves_with(code, at) ((code)[at] == WITH_EXCEPT_START \
        || ((code)[at] == CALL && (code)[(at) + 1] == EXIT_ARGUMENTS))
    """
    bint enters_with(const unsigned char *code, Py_ssize_t at)
    bint leaves_with(const unsigned char *code, Py_ssize_t at)
    bint loads_exit(const unsigned char *code, Py_ssize_t at)
    bint ENTERS_BY_CALL      # behind which a signal is looked at
    int FOR_ITER


cdef enum:
    CO_GENERATOR = 0x20
    CO_ASYNC_GENERATOR = 0x200


cdef class DriverFields:
    """The fields of a driver: what the calls of one FastRedlock share."""

    cdef object __weakref__              # a keeper that sleeps has no other
    cdef public object settings
    cdef public Engine engine
    cdef public object keeper            # of the leases that are kept, or None
    cdef public ObserverHooks observer   # notified at the end of each call
    cdef public object current           # AsyncioDriver of its loop; None: it blocks
    cdef readonly dict entered           # by key, the blocks that were not left: the
    #                                      caller, a weak reference to its lease, the
    #                                      frame in whose with statement they end
    cdef dict permits                    # by name, once a semaphore was taken; 0: lock
    cdef public bint runs_in_core        # False: bytes and clock are its own
    cdef Terms default_terms             # of the settings, which do not change
    cdef TokenSource token_source        # likewise; None: the caller's function
    cdef bint waits_in_turn              # likewise

    blocks = True        # its calls run to their end in the thread that makes them

    def __init__(self, settings, Engine engine not None):
        self.settings = settings
        self.engine = engine
        self.observer = no_observer
        self.entered = {}
        self.default_terms = settings.default_terms
        self.waits_in_turn = settings.retry.waits_in_turn
        self.token_source = engine.token_source = settings.token_source
        self.runs_in_core = True

    def run(self, work):
        """Run a round or a batch until it is closed; a lost one is rolled back.

        Blocks. Raises FastRedlockError after close(). An exception of a signal handler
        rolls all back.
        """
        try:
            unlogged = blocking_run_work(self.engine, work)
        except (ClosedError, StateError) as error:
            self.refuse(error)
        else:
            if unlogged:
                self.log_warnings()

    def caller(self):
        """Return the task, greenlet or thread that calls; None: none is known."""
        return calling_thread()

    # A lease reads its clock and its process here: drivers of tests have their own.

    def now_ns(self):
        return clock_ns()

    def fork_generation(self):
        return current_generation


cdef class LocksFields:
    cdef public DriverFields _driver
    cdef object __weakref__


cdef enum:
    SHOWN_LENGTH = 200       # of a resource


cdef class LeaseFields:
    cdef public object resource
    cdef public object _driver      # which its release needs; nothing else keeps it
    cdef public Round _round        # that took it
    cdef public object _status      # None until a release was begun
    cdef object __weakref__

    def __init__(self, driver, resource, Round round not None):
        self._driver = driver
        self.resource = resource
        self._round = round

    def _new_release(self):
        return fields_new_release(self, (<DriverFields?>self._driver).engine)

    @property
    def _valid_until_ns(self):
        return 0 if self._status is not None else fields_until_ns(self)

    @property
    def _lease(self):
        """The lease that a block has which is entered by this."""
        return self

    def __del__(self):
        # It asks the clock alone: another thread may be inside of the engine.
        if self._status is None and fields_is_dropped(self):
            text = f"{repr(self.resource)[:SHOWN_LENGTH]}: its lease is dropped while"
            text += " it is valid, and was not released: its key remains for its ttl"
            text += " (use `with`, or release it)"
            PyErr_ResourceWarning(self, 1, "%U", <PyObject *>text)


cdef inline int64_t fields_now_ns(DriverFields driver) except -1:
    return clock_ns() if driver.runs_in_core else driver.now_ns()


cdef Round fields_new_release(LeaseFields lease, Engine engine):
    # Its release; of a lease that stays (at_least), what lets its key expire by then.
    cdef Round grant = lease._round, last
    cdef ValidityFields validity = grant.lease_state
    cdef int64_t left_ns = 0
    if validity is None:
        return engine_new_release(engine, grant, grant.terms)
    if validity.stays_until_ns != 0:
        left_ns = validity.stays_until_ns
        left_ns -= fields_now_ns(<DriverFields?>lease._driver)
    if left_ns > 0:
        ttl_ms = -(-left_ns // NS_PER_MS)
        last = engine_new_extension(
            engine, grant, Terms(ttl_ms, 0, grant.terms.timeout_ns)
        )
        last.is_released = True
        return last
    return engine_new_release(engine, grant, validity.longest_terms)


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

    In a running loop it is (the thread, a weak reference to the task).
    """
    cdef uint64_t thread = PyThreadState_GetID(PyThreadState_Get())
    loop = running_loop()
    task = None if loop is None else modules["asyncio"].current_task(loop)
    if task is not None:
        return thread, PyWeakref_NewRef(task, None)
    greenlet_hub_caller()      # looks whether the program is patched
    return thread if patching is None else PyWeakref_NewRef(patching.current(), None)


cdef object frame_at(int depth):
    try:
        return sys._getframe(depth)
    except ValueError:      # the stack is not that deep
        return None


cdef object frame_entering(object frame):
    # The frame, if it enters a block by a with statement: it leaves the block before it
    # ends. None of all else, such as an ExitStack's.
    cdef bytes code
    if frame is None:
        return None
    code = frame.f_code.co_code
    return frame if enters_with(code, frame.f_lasti) else None


cdef object frame_outermost(object frame):
    # A generator is suspended inside its block. It belongs to the loop over it, and
    # that of a context manager (contextlib) to the with statement that began it.
    while frame is not None and frame.f_code.co_flags & CO_GENERATOR:
        begun = frame.f_back
        if begun is None:
            break
        at = begun.f_lasti      # in Python 3.12 of the cache behind the instruction
        if FOR_ITER not in begun.f_code.co_code[max(at - 2, 0):at + 1:2]:
            if begun.f_code.co_name != "__enter__" or (
                begun.f_globals.get("__name__") != "contextlib"
                or frame_entering(begun.f_back) is None
            ):
                break
            begun = begun.f_back
        frame = begun
    return frame


cdef int fields_enter(LeaseFields lease, object caller, object frame) except -1:
    # Note who has entered a block by a lease: an acquire of the same resource in there
    # would wait for itself.
    cdef Round grant = lease._round
    cdef dict entered = (<DriverFields>lease._driver).entered
    entry = (caller, PyWeakref_NewRef(lease, None), frame_outermost(frame))
    for key in grant.keys or (grant.resource,):
        entered[key] = entry


cdef int fields_leave(LeaseFields lease) except -1:
    # Forget it; nothing where another lease was entered since.
    cdef Round grant = lease._round
    cdef dict entered = (<DriverFields>lease._driver).entered
    if len(entered) == 0:
        return 0
    for key in grant.keys or (grant.resource,):
        found = entered.get(key)
        if found is not None and (<tuple>found)[1]() is lease:
            del entered[key]


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
    # Whether a lease that is collected leaves a key that nobody will release. One that
    # is kept ends by that; another process may have a token that was shown, or given.
    cdef Round grant = lease._round
    if grant is None or is_exiting or grant.generation != current_generation or (
        not grant.is_opened or grant.is_released or grant.is_rolled_back
        or grant.is_shown or grant.token_uses is not None
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


def begin_releases(DriverFields driver not None, list leases not None, unknown):
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
            rounds.append(fields_begin_release(lease, driver.engine, unknown))
    return rounds, left_ns


def observe_releases(
    DriverFields driver not None, list leases not None, list left_ns not None
):
    """Notify the observer of releases that have ended."""
    for lease, left in zip(leases, left_ns):
        if left != NOT_OURS:
            driver.observer.on_end(lease, left)


cdef Round fields_begin_release(LeaseFields lease, Engine engine, object unknown):
    # `unknown`: its status from now on, until a quorum has confirmed the release.
    cdef Round release, grant = lease._round
    if lease._status is not None or grant.lease_state is not None or (
        grant.generation != current_generation
    ):
        return lease._begin_release()
    release = engine_new_release(engine, grant, grant.terms)
    release.lease_state = grant      # it may be handed on
    lease._status = unknown
    return release


# --- validity -------------------------------------------------------------------------
# The record of a lease that was extended or is kept, and what a keeper does to
# thousands of them at a time, in C: the common case, a lease that nobody extends by
# hand, renewed in time. The text of these rules is _locking/renewals.py, which treats
# all the others one by one: so each loop here passes those that are plain, and lists
# the others. A test runs both over the same leases.
#
# The record is the weak reference to its lease, not an object that has one. Threads
# share it without a lock (_locking/validity.py): each field that more than the keeper's
# own thread changes is read and set in one step.

cdef extern from *:
    ctypedef class _weakref.ReferenceType [object PyWeakReference]:
        pass


@cython.final
cdef class Pace:
    """The times of all leases of one ttl (ns)."""

    cdef public int64_t lease_ns       # the ttl, less the drift
    cdef public int64_t wait_ns        # between renewals, at most
    cdef public int64_t part_ns        # of that, which is random
    cdef public int64_t margin_ns      # a loss is reported so long before
    cdef public int shift              # log2 of the span of a bucket
    cdef public int notice_shift       # log2 of a span below half of the margin


cdef class ValidityFields(ReferenceType):
    """A weak reference to a lease that was extended or is kept, and its times."""

    cdef public int64_t validity_ns      # its end, as long as it has no bounds
    cdef public list bounds              # its ends, of which the earliest counts; None:
    #                                      it was never extended by hand
    cdef public dict under_way           # extensions; by each, the bounds if it is won
    cdef public set unanswered           # extensions that some masters may still do
    cdef public Terms terms              # last asked for
    cdef public Terms longest_terms      # how long a key can live, confirmed or not
    cdef public int64_t stays_until_ns   # not released before: `at_least` of a lock
    cdef public int64_t until_ns         # from then on not renewed; 0: never kept
    cdef public int64_t unknown_until_ns   # adopted: so long its first renewal may take
    cdef public Pace pace                # of its ttl, once the keeper has looked
    cdef public list bucket              # of its keeper, in which it waits; or None
    cdef Round last                      # its renewal
    cdef public Round failed             # the last renewal, where it was not confirmed
    cdef public uint64_t awaited         # the masters that never answered a renewal
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

    def begin_bounds(self):
        """Let bounds count from now on: the lease is extended by hand."""
        cdef dict under_way
        cdef set unanswered
        cdef list bounds
        if self.bounds is not None:
            return
        under_way, unanswered, bounds = {}, set(), [None]      # a collection may run
        if self.bounds is None:
            bounds[0] = self.validity_ns
            self.under_way = under_way
            self.unanswered = unanswered
            self.bounds = bounds

    def take_end(self):
        """Return whether this call is the one that notifies of the end of the lease."""
        was_noted, self.is_end_noted = self.is_end_noted, True
        return not was_noted

    @property
    def renewal(self):
        """The last renewal, until all masters have answered it, or None."""
        return self.last

    @renewal.setter
    def renewal(self, Round renewal):
        kept_set_renewal(self, renewal)


def set_first(owner not None, str name not None, new):
    """Set a field that is None; return what was set first: all get the same."""
    if getattr(owner, name) is None:
        setattr(owner, name, new)
    return getattr(owner, name)


cdef int64_t validity_until_ns(ValidityFields self) except -1:
    if self.is_lost:
        return 0
    return self.validity_ns if self.bounds is None else min(self.bounds)


cdef void kept_set_renewal(ValidityFields self, Round renewal) noexcept:
    cdef Round _before     # let go of at the end, when this one is set
    _before, self.last = self.last, renewal


cdef inline bint kept_is_plain(ValidityFields self) noexcept:
    # Whether it was never extended by hand, its last renewal was confirmed, and it is
    # not lost.
    return self.bounds is None and self.failed is None and not self.is_lost


def kept_due(
    list bucket not None, int64_t now_ns, list renewals not None, list grants not None
):
    """Add the plain ones to be renewed now, and the rounds that took their leases.

    Returns the others of the bucket, and the earliest end of these (ns).
    """
    cdef ValidityFields kept
    cdef LeaseFields lease
    cdef int64_t soonest_ns = NEVER_NS
    cdef list others = []
    for kept in bucket:
        if kept.bucket is not bucket:
            continue      # it was put into another one since
        lease = kept()
        if lease is None or lease._status is not None:
            kept.bucket = None
        elif (
            not kept_is_plain(kept) or kept.until_ns != NEVER_NS
            or kept.pace is None or now_ns >= kept.validity_ns - kept.pace.margin_ns
        ):
            others.append(kept)
        else:
            kept.bucket = None
            renewals.append(kept)
            grants.append(lease._round)
            soonest_ns = min(soonest_ns, kept.validity_ns)
    return others, soonest_ns


def kept_begin(
    Engine engine not None, list renewals not None, list grants not None,
    int64_t time_ns,
):
    """Make the rounds that renew these, each for time_ns at most: (rounds, others).

    `grants`: the rounds of their leases. The others, each with its round, are
    those that were extended by hand.
    """
    cdef ValidityFields kept
    cdef Round grant, round
    cdef list rounds = [], others = []
    for kept, grant in zip(renewals, grants):
        round = engine_new_extension(engine, grant, kept.terms)
        if time_ns < round.terms.timeout_ns:
            round.left_ns = time_ns
        if kept.last is not None:
            kept.let_go(kept.last)
        kept_set_renewal(kept, round)      # before it is asked for bounds
        if kept.bounds is not None:
            others.append((kept, round))
        rounds.append(round)
    return rounds, others


def kept_end(
    list renewals not None, list rounds not None, dict buckets not None,
    int draw, int step,
):
    """Let the plain ones count that were won in time; put each at its next renewal.

    `draw` and `step` are chance. Returns the others, each with its round; the next
    draw; the keys of new buckets; the shortest time between renewals of these (ns).
    """
    cdef ValidityFields kept
    cdef LeaseFields lease
    cdef Round round
    cdef Pace pace
    cdef int64_t due_ns, key_ns, bucket_ns = -1, shortest_ns = NEVER_NS
    cdef list bucket = None, new_keys = [], others = []
    for kept, round in zip(renewals, rounds):
        lease = kept()
        pace = kept.pace
        if (
            round.verdict_code != VERDICT_WON
            or round.closed_ns >= kept.validity_ns
            or not kept_is_plain(kept)
            or lease is None or lease._status is not None or pace is None
        ):
            others.append((kept, round))
            continue
        kept.validity_ns = round_valid_until_ns(round)
        shortest_ns = min(shortest_ns, pace.wait_ns)
        draw = (draw + step) & 0xFFFF
        due_ns = round.opened_ns + pace.wait_ns - (draw * pace.part_ns >> 16)
        key_ns = due_ns >> pace.shift << pace.shift
        if key_ns != bucket_ns:
            bucket_ns = key_ns
            bucket = buckets.get(key_ns)
            if bucket is None:
                buckets[key_ns] = bucket = []
                new_keys.append(key_ns)
        bucket.append(kept)
        kept.bucket = bucket
    return others, draw, new_keys, shortest_ns
