# To acquire: a first try in C; the policy of the shell decides what follows.
#
# The rules of all tries are those of the attempts (fastredlock/_locking/attempt.py). A
# first try of a resource that nobody here waits for is the common case: one round, and
# where it is won no Python was run. After any other verdict, and for arguments that are
# not plain, the attempts go on behind it, with its round as their first one: a
# generator that yields the rounds to run and the delays between them.

cdef enum:
    PLAIN_SIZE = 1024              # of a key that no rule of encode_resource refuses
    PLAIN_TIMEOUT = 1_000_000      # s
    PERMITS_NOTED = 1024           # names
    NO_PLAIN_TIMEOUT = -2
    OWN_SIZE = 12


@cython.final
cdef class DefaultResource:
    """What is asked for where no resource is given; None is refused."""

    def __repr__(self):
        return "the default resource"


cdef object default_resource = DefaultResource()
DEFAULT_RESOURCE = default_resource


@cython.final
cdef class AcquireCall(Call):
    """An acquire of one resource, or of all of several.

    `round` is that of its last try: an exception in here, or in the caller when this
    has returned (a signal's handler), is undone by it.
    """

    cdef readonly object resource
    cdef readonly object encode      # from the resource to its key, or keys
    cdef readonly object ttl
    cdef readonly object timeout
    cdef readonly int64_t began_ns
    cdef readonly Round round
    cdef type kind                   # of lease
    cdef object keep                 # KeepAlive; or None
    cdef bint enters                 # the with block of a lock
    cdef bint encodes_kind           # `encode` is a KindEncoder
    cdef bint is_entered             # ...and the observer was notified of that
    cdef object attempts             # once the first try was not won

    cdef object go_on(self):
        cdef Round first = self.round
        if self.attempts is None:
            if first is None:
                self.round = acquire_first_try(self)
                if self.round is not None:
                    return acquire_end(self) if self.round.is_finished else self.round
            elif first.verdict_code == VERDICT_WON:
                return acquire_end(self)
            self.attempts = self.driver.attempts(self, first)
            first = None
        work = next(self.attempts, None)
        if work is None:
            return acquire_end(self)
        # Thousands may wait here: a round that is rolled back is dropped.
        self.round = None if type(work) is float else <Round?>work
        return work

    cdef int give_up(self) except -1:
        return 0 if self.blocks else self.take_back()

    cdef int take_back(self) except -1:
        if self.round is not None:
            call_abandon(self, self.round)
        if self.is_entered:
            self.is_entered = False
            observer_on_block(self.driver.observer, "left", self.resource)
        return 0

    cdef bint swallows(self, object error) except -1:
        self.driver.observer.on_failed(error)
        return False

    cdef str name(self):
        return "FastRedlock.acquire"


def new_acquire(
    DriverFields driver not None, type kind not None, resource, ttl, timeout, encode,
    keep=None, bint enters=False,
):
    """Make an acquire, of a lease of this kind.

    `keep`: a KeepAlive, or None; `enters`: it is the beginning of a with block.
    `encode`: from the resource to its key, its keys, or a KeyOfKind.
    """
    return acquire_new(driver, kind, resource, ttl, timeout, encode, keep, enters)


def acquire_in_c(type kind not None, encode):
    """Return a decorator: an awaitable client's `acquire`, a function of C.

    The method has its text. CPython looks up the default of each parameter that is not
    given in a dictionary: a tenth of a pair with a key at rest.
    """
    def in_c(method):
        def begun(
            LocksFields self not None, resource=default_resource, *, ttl=None,
            timeout=None, keep_alive=False, on_lost=None, linger=None, permits=None,
        ):
            keep, encoding = None, encode
            if keep_alive or not (
                on_lost is None and linger is None and permits is None
            ):
                ttl, encoding, keep = self._asked(
                    ttl, keep_alive, on_lost, linger, permits
                )
            return acquire_new(
                fields_driver(self), kind, resource, ttl, timeout, encoding, keep, False
            )

        return dressed(begun, method)

    return in_c


cdef AcquireCall acquire_new(
    DriverFields driver, type kind, object resource, object ttl, object timeout,
    object encode, object keep, bint enters,
):
    cdef AcquireCall call = AcquireCall.__new__(AcquireCall)
    call.driver = driver
    call.kind = kind
    call.resource = resource
    if resource is default_resource:
        call.resource = driver.settings.resource
    call.ttl = ttl
    call.timeout = timeout
    call.encode = encode
    call.keep = keep
    call.enters = enters
    call.encodes_kind = isinstance(encode, KindEncoder)
    call.began_ns = fields_now_ns(driver)
    call.stage = CALL_NEW
    if driver.permits is not None or call.encodes_kind:
        acquire_note_permits(call)
    return call


cdef int acquire_note_permits(AcquireCall self) except -1:
    # Warn where one name is taken by other numbers of permits, or by none: a lock.
    cdef DriverFields driver = self.driver
    count = self.encode.count if type(self.encode) is PermitsOf else 0
    if not isinstance(self.resource, str) or count == 0 and driver.permits is None:
        return 0
    if driver.permits is None:
        driver.permits = {}
    known = driver.permits.get(self.resource)
    if known is None:
        if len(driver.permits) < PERMITS_NOTED:
            driver.permits[self.resource] = count
    elif known != count:
        driver.warn_of_permits(self.resource, known, count)


cdef object acquire_end(AcquireCall self):
    cdef Round round = self.round
    self.attempts = None
    if round.verdict_code == VERDICT_WON:
        self.value = fields_lease(self.kind, self.driver, self.resource, round)
    if self.driver.observer is not no_observer:
        observer_on_acquired(self.driver.observer, self.resource, round)
    if self.enters and self.value is not None:
        self.is_entered = True
        observer_on_block(self.driver.observer, "entered", self.resource)
    if self.keep is not None and self.value is not None:
        self.keep.begin(self.value)


cdef Round acquire_first_try(AcquireCall self):
    # To be run. None: these arguments, or this moment, are not the common case, and
    # nothing was done; the attempts check them. The key is checked.
    cdef DriverFields driver = self.driver
    cdef Engine engine = driver.engine
    cdef Terms terms = driver.default_terms
    cdef int64_t timeout_ns
    cdef Round round = None
    cdef bint waits
    if self.keep is not None:
        self.keep.check(driver, self.ttl)
    key = first_try_key(self.resource)
    if self.encodes_kind and key is not None:
        key = (<KindEncoder>self.encode).of_key(key)
    if key is None:
        key = self.encode(self.resource)
    timeout_ns = first_try_timeout_ns(self.timeout)
    if self.ttl is not None:
        terms = driver.settings.terms(self.ttl)
    if terms.linger_ns and engine.rests and type(key) is bytes and (
        timeout_ns != NO_PLAIN_TIMEOUT
    ):
        round = acquire_at_rest(self, key, terms)
        if round is not None:
            return round
    waits = timeout_ns != 0 and type(key) is not tuple and (
        engine_is_contended(engine, key, self.began_ns)
    )
    if timeout_ns == NO_PLAIN_TIMEOUT or waits and not acquire_may_wait(self, key):
        return None
    round = engine_new_round(
        engine, OPERATION_ACQUIRE, key, fields_token(driver), terms
    )
    round.attempt = 1
    round.began_ns = self.began_ns
    round.left_ns = timeout_ns      # as time_for_round
    if timeout_ns > 0:
        round.left_ns = max(timeout_ns, terms.last_round_ns(engine.round_trip_ns))
    if waits:
        round.turn = turn_new(
            self.began_ns, False, -1 if timeout_ns < 0 else self.began_ns + timeout_ns
        )
    return round


cdef Round acquire_at_rest(AcquireCall self, bytes key, Terms terms):
    # Of a key that rests here: won; or None.
    cdef Engine engine = self.driver.engine
    cdef Round round = round_new(
        OPERATION_ACQUIRE, <bytes>engine_keys(engine, key), HANDED_ON, terms,
        engine.master_count,
    )
    round.attempt = 1
    round.began_ns = self.began_ns
    if engine_take_rest(engine, round, fields_now_ns(self.driver)):
        return round
    return None


cdef bint acquire_may_wait(AcquireCall self, object key) except -1:
    # Whether a first try may queue. Not where the policy polls, nor where the attempts
    # refuse it or warn: its caller has entered a block of this key, or blocks a loop.
    cdef DriverFields driver = self.driver
    if not driver.settings.retry.waits_in_turn:
        return False
    if self.blocks and running_loop() is not None:
        return False
    if not driver.entered:
        return True
    if type(key) is Permits:
        return False
    entry = driver.entered.get(engine_keys(driver.engine, key))
    return entry is None or (<tuple>entry)[0] != (
        calling_thread() if self.blocks else self.here.caller()
    )


cdef int64_t first_try_timeout_ns(object timeout) except? NO_PLAIN_TIMEOUT:
    # As timeout_to_ns, which is asked about all that is not plain; -1: no limit.
    if timeout is None:
        return -1
    if type(timeout) is int:
        if timeout == 0:      # what a single try gives
            return 0
        if 0 < timeout <= PLAIN_TIMEOUT:
            return <int64_t>timeout * NS_PER_S
    elif type(timeout) is float and 0 <= <double>timeout <= PLAIN_TIMEOUT:
        return <int64_t>(<double>timeout * 1e9)
    return NO_PLAIN_TIMEOUT


cdef bytes first_try_key(object resource):
    # As encode_resource, which is asked about all that is not plain: None.
    cdef bytes key = None
    if type(resource) is str:
        try:
            key = (<str>resource).encode("utf-8")
        except UnicodeEncodeError:
            return None
    elif type(resource) is bytes:
        key = resource
    if key is not None and 0 < len(key) <= PLAIN_SIZE and (
        # In all names of our own keys. (`in` of bytes makes an exception, 0.3 us.)
        memmem(<const char *>key, len(key), b"fastredlock:", OWN_SIZE) == NULL
    ):
        return key
    return None


awaiting_set_slots(AcquireCall)
