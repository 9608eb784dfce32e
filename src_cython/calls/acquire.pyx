# To acquire: a first try in C; the policy of the shell decides what follows.
#
# The rules of all tries are those of the attempts (fastredlock/_locking/attempt.py). A
# first try of a resource that nobody here waits for is the common case: one round, and
# where it is won the policy is not asked. After any other verdict, and for arguments
# that are not plain, the attempts go on behind it, with its round as their first one: a
# generator that yields the rounds to run and the delays between them.

from functools import update_wrapper

cdef enum:
    PLAIN_SIZE = 1024              # of a key that no rule of encode_resource refuses
    PLAIN_TIMEOUT = 1_000_000      # s
    PERMITS_NOTED = 1024           # names
    NO_PLAIN_TIMEOUT = -2


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

    `lease_type`: its class. `encode`: from the resource to its key, its keys, or a
    KeyOfKind. `keep`: a KeepAlive, or None; `enters`: it is the beginning of a with
    block. `round` is that of its last try: an exception in here, or in the caller when
    this has returned (a signal's handler), is undone by it.
    """

    cdef readonly object resource
    cdef readonly object encode
    cdef readonly object ttl
    cdef readonly object timeout
    cdef readonly int64_t began_ns
    cdef readonly Round round
    cdef type lease_type
    cdef object keep
    cdef bint enters
    cdef bint is_entered             # the block, and the observer was notified of that
    cdef object attempts             # once the first try was not won

    def __init__(
        self, DriverFields driver not None, type lease_type not None, resource, ttl,
        timeout, encode, keep=None, bint enters=False,
    ):
        cdef bint is_semaphore = type(encode) is PermitsOf
        self.driver = driver
        self.lease_type = lease_type
        self.resource = resource
        if resource is default_resource:
            self.resource = driver.settings.resource
        self.ttl = ttl
        self.timeout = timeout
        self.encode = encode
        self.keep = keep
        self.enters = enters
        self.called = "FastRedlock.acquire"
        self.began_ns = fields_now_ns(driver)
        if (is_semaphore or driver.permits is not None) and isinstance(
            self.resource, str
        ):
            acquire_note_permits(self, (<PermitsOf>encode).count if is_semaphore else 0)

    cdef object go_on(self):
        cdef Round first = self.round
        if self.attempts is None:
            if first is None:
                self.round = first = acquire_first_try(self)
                if first is not None:
                    first.attempt = 1
                    first.began_ns = self.began_ns
                    return acquire_end(self) if first.is_finished else first
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
            observer_notify(self.driver.observer, "left", (self.resource,))
        return 0

    cdef bint swallows(self, object error) except -1:
        self.driver.observer.on_failed(error)
        return False


def acquire_in_c(type lease_type not None, encode):
    """Return a decorator: an awaitable client's `acquire`, a function of C.

    The method has its text. CPython looks up the default of each parameter that is not
    given in a dictionary: a tenth of a pair with a idle key.
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
            return AcquireCall(
                self._driver, lease_type, resource, ttl, timeout, encoding, keep
            )

        return update_wrapper(begun, method)

    return in_c


cdef int acquire_note_permits(AcquireCall self, int count) except -1:
    # Warn where one name is taken by other numbers of permits, or by none: a lock.
    cdef DriverFields driver = self.driver
    if driver.permits is None:
        driver.permits = {}
    known = driver.permits.get(self.resource)
    if known is None:
        if len(driver.permits) < PERMITS_NOTED:
            driver.permits[self.resource] = count
    elif known != count:
        driver.warn_of_permits(self.resource, known, count)
    return 0


cdef object acquire_end(AcquireCall self):
    cdef Round round = self.round
    self.attempts = None
    if round.verdict_code == VERDICT_WON:
        self.value = fields_lease(self.lease_type, self.driver, self.resource, round)
    if self.driver.observer is not no_observer:
        observer_on_acquired(self.driver.observer, self.resource, round)
    if self.enters and self.value is not None:
        self.is_entered = True
        observer_notify(self.driver.observer, "entered", (self.resource,))
    if self.keep is not None and self.value is not None:
        self.keep.begin(self.value)


cdef Round acquire_first_try(AcquireCall self):
    # To be run, or won by an idle key here. None: these arguments, or this moment, are
    # not the common case, and nothing was done; the attempts check them. The key is
    # checked.
    cdef DriverFields driver = self.driver
    cdef Engine engine = driver.engine
    cdef Terms terms = driver.default_terms
    cdef int64_t timeout_ns
    cdef Round round
    cdef bint waits
    if self.keep is not None:
        self.keep.check(driver, self.ttl)
    key = first_try_key(self)
    timeout_ns = first_try_timeout_ns(self.timeout)
    if self.ttl is not None:
        terms = driver.settings.terms(self.ttl)
    if timeout_ns == NO_PLAIN_TIMEOUT:
        return None
    if terms.linger_ns and engine.idle_keys and type(key) is bytes:
        round = round_new(
            OPERATION_ACQUIRE, <bytes>engine_keys(engine, key), HANDED_ON, terms,
            engine.master_count,
        )
        if engine_take_idle_key(engine, round, fields_now_ns(driver)):
            return round
    waits = timeout_ns != 0 and type(key) is not tuple and (
        engine_is_contended(engine, key, self.began_ns)
    )
    if waits and not acquire_may_wait(self, key):
        return None
    round = engine_new_round(
        engine, OPERATION_ACQUIRE, key,
        driver.settings.new_token() if driver.token_source is None
        else tokens_draw(driver.token_source),
        terms,
    )
    round.left_ns = timeout_ns      # as time_for_round
    if timeout_ns > 0:
        round.left_ns = max(timeout_ns, terms.last_round_ns(engine.round_trip_ns))
    if waits:
        round.turn = turn_new(
            self.began_ns, False, -1 if timeout_ns < 0 else self.began_ns + timeout_ns
        )
    return round


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
    if (type(timeout) is float or type(timeout) is int) and (
        0 <= timeout <= PLAIN_TIMEOUT
    ):
        return <int64_t>(<double>timeout * 1e9)
    return NO_PLAIN_TIMEOUT


cdef object first_try_key(AcquireCall self):
    # As `encode`, which is asked about all that is not plain.
    cdef bytes key = None
    if type(self.resource) is bytes:
        key = self.resource
    elif type(self.resource) is str:
        try:
            key = (<str>self.resource).encode("utf-8")
        except UnicodeEncodeError:
            pass
    if key is None or not 0 < len(key) <= PLAIN_SIZE or (
        # In all names of our own keys. (`in` of bytes makes an exception, 0.3 us.)
        memmem(<const char *>key, len(key), b"fastredlock:", 12) != NULL
    ):
        return self.encode(self.resource)
    if isinstance(self.encode, KindEncoder):
        return (<KindEncoder>self.encode).of_key(key)
    return key


awaiting_set_slots(AcquireCall)
