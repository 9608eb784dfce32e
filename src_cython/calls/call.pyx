# A call: to acquire, extend or release, and both ends of a body, of both clients.
#
# Theory of operation. There is one body of each call, `go_on`, which does no I/O: it
# returns the round to run next, or the time (s) to sleep, and None at the end, with
# `value` set. The machine waits for it in one of two ways. A blocking call runs to its
# end (call_run), in the thread that calls. An awaited one is an object with the methods
# of a coroutine, which asyncio and `await` take for one:
#
#   NEW      not begun; where it never is awaited, a RuntimeWarning
#   RUNNING  inside one of its steps
#   WAITING  its task waits for `future`: the end of its round, or of a delay
#   OVER     it has returned or raised
#
# Whatever leaves a call by exception or close(), and an end without either (its task
# was collected), undoes it: `give_up`. As coroutines of Python, with a generator for
# the attempts, the two calls of a pair cost 28,000 instructions, half of all. A driver
# that moves the bytes itself (masters in memory, the simulator) gets the same calls.

from functools import update_wrapper

cdef enum:
    CALL_NEW, CALL_RUNNING, CALL_WAITING, CALL_OVER


cdef class Call(Awaited):
    """The base of a call: a machine that blocks, or is awaited as a coroutine."""

    cdef DriverFields driver
    cdef object here             # AsyncioDriver, or what moves the bytes by hand
    cdef AsyncioFuture future    # that its task waits for
    cdef object value            # to be returned
    cdef str called
    cdef uint8_t stage
    cdef bint blocks

    def __await__(self):
        if self.stage == CALL_WAITING:
            raise RuntimeError("coroutine is being awaited already")
        return self

    def run(self):
        """Make the call, and return its value; blocks."""
        return call_run(self)

    cdef object go_on(self):
        # Return the round to run, or the time to sleep; None: it is over.
        raise NotImplementedError

    cdef int give_up(self) except -1:
        # Undo what was begun; the caller has left.
        raise NotImplementedError

    cdef int take_back(self) except -1:
        # Undo a blocking call. Its caller calls this as well, because an exception may
        # come after this has returned; nothing is undone twice.
        return 0

    cdef bint is_owed(self) noexcept:
        # Return whether it is done though nobody awaits it.
        return False

    cdef bint is_sent_anyway(self) except -1:
        # Return whether it is done though it was cancelled before its first step.
        return False

    cdef bint swallows(self, object error) except -1:
        # It was given up: whether it returns None instead of raising this.
        return False

    # --- awaited ----------------------------------------------------------------------

    cdef PySendResult step(self, PyObject **given) except -1:
        cdef uint8_t stage = self.stage
        cdef PySendResult status
        call_check(self)
        if self.future is not None and self.future.callback is not None and (
            not self.future.is_done
        ):      # another task waits for it, and this one would for ever
            raise RuntimeError("coroutine is being awaited already")
        self.stage = CALL_RUNNING
        try:
            if stage == CALL_NEW:
                self.here = call_here(self.driver)
            status = call_step(self, given)
        except BaseException as error:
            self.stage = CALL_OVER
            self.give_up()
            if not self.swallows(error):
                raise
            awaiting_give(given, None)
            return PYGEN_RETURN
        return status

    def send(self, value):
        return self.__next__()

    def throw(self, error_type, value=None, traceback=None):
        cdef uint8_t stage = self.stage
        call_check(self)
        self.stage = CALL_OVER
        try:
            raise error_type, value, traceback
        except BaseException as error:
            if stage == CALL_NEW and self.is_sent_anyway():
                try:
                    self.here = call_here(self.driver)
                except Exception:
                    pass      # it is no task of a loop that may use the engine
            if self.here is not None:
                self.give_up()
                if self.swallows(error):
                    raise StopIteration from None
            raise

    def close(self):
        cdef uint8_t stage = self.stage
        if stage == CALL_OVER:
            return
        call_check(self)
        self.stage = CALL_OVER
        if stage != CALL_NEW:
            self.give_up()

    def __del__(self):
        cdef uint8_t stage = self.stage
        self.stage = CALL_OVER
        if self.driver is None:      # its __init__ has raised
            return
        if stage == CALL_WAITING or stage == CALL_NEW and self.is_owed():
            self.give_up()
        elif stage == CALL_NEW and not self.driver.blocks:
            text = f"coroutine '{self.called}' was never awaited".encode()
            PyErr_WarnEx(RuntimeWarning, text, 1)

    @property
    def __name__(self):
        """For the repr of its task."""
        return self.called.rpartition(".")[2]

    @property
    def __qualname__(self):
        return self.called

    @property
    def cr_running(self):
        """Whether it is inside one of its steps."""
        return self.stage == CALL_RUNNING


def undo(Call self not None):
    """Undo a blocking acquire, or a call for each of many, that its caller has left."""
    self.take_back()


cdef object call_begin(Call self):
    # Run it where its client blocks; else return what is awaited.
    return call_run(self) if self.driver.blocks else self


cdef object call_run(Call self):
    cdef object work
    if self.stage != CALL_NEW:
        call_check(self)
    self.blocks = True
    self.stage = CALL_RUNNING
    try:
        while (work := self.go_on()) is not None:
            if type(work) is float:
                self.driver.sleep(work)
            elif self.driver.runs_in_core:
                fields_run(self.driver, work)
            else:
                self.driver.run(work)
    except BaseException as error:
        self.stage = CALL_OVER
        self.give_up()
        if not self.swallows(error):
            raise
        return None
    self.stage = CALL_OVER
    return self.value


cdef int call_check(Call self) except -1:
    if self.stage == CALL_RUNNING:
        raise ValueError("coroutine already executing")
    if self.stage == CALL_OVER:
        raise RuntimeError("cannot reuse already awaited coroutine")


cdef PySendResult call_step(Call self, PyObject **given) except -1:
    cdef object work
    cdef PyObject *result = NULL
    while True:
        if self.future is not None:
            if self.future.step(&result) == PYGEN_NEXT:
                given[0] = result
                self.stage = CALL_WAITING
                return PYGEN_NEXT
            Py_XDECREF(result)
            self.future = None
            if self.driver.engine.unlogged:
                self.driver.log_warnings()
        work = self.go_on()
        if work is None:
            self.stage = CALL_OVER
            awaiting_give(given, self.value)
            return PYGEN_RETURN
        if self.driver.runs_in_core and asyncio_hand_on(self.here, work):
            continue
        self.future = call_begin_to_wait(self, work)


cdef AsyncioFuture call_begin_to_wait(Call self, object work):
    cdef bint is_by_hand = not self.driver.runs_in_core
    if type(work) is float:
        if is_by_hand:
            return ByHandFuture(self.here.sleep(work))
        return (<AsyncioDriver>self.here).sleep(work)
    try:
        if is_by_hand:
            return ByHandFuture(self.here.submit(work))
        return asyncio_submit(<AsyncioDriver>self.here, work)
    except (ClosedError, StateError) as error:
        self.driver.refuse(self.here, work, error)


cdef object call_here(DriverFields driver):
    # Do what LoopDriver.here does.
    current = driver.current if driver.runs_in_core else None
    try:
        if current is not None and asyncio_is_here(<AsyncioDriver?>current):
            return current
    except RuntimeError:      # no loop runs
        pass
    return driver.here()


cdef object call_caller(Call self):
    # Return the caller that blocks in it, or the task that awaits it.
    if self.blocks:
        return self.driver.caller()
    if self.driver.runs_in_core:
        return asyncio_caller(<AsyncioDriver>self.here)
    return self.here.caller()


cdef int call_abandon(Call self, object work) except -1:
    # Roll back what an awaited call has begun, or send its release all the same; of a
    # blocking one, by a function of C: no signal is looked at before its first line.
    if not self.blocks:
        self.driver.abandon(self.here, work)
    elif self.driver.runs_in_core:
        blocking_abandon(self.driver.engine, work)
    else:
        self.driver.abandon(work)


# --- acquire --------------------------------------------------------------------------
# An acquire: a first try in C; the policy of the shell decides what follows.
#
# The rules of all tries are those of the attempts (fastredlock/_locking/attempt.py). A
# first try of a resource that nobody here waits for is the common case: one round, and
# where it is won the policy is not asked. After any other verdict, and for arguments
# that are not plain, the attempts go on behind it, with its round as their first one: a
# generator that yields the rounds to run and the delays between them.

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
    Permits. `keep`: a KeepAlive, or None; `lock`: whose with block begins by it, and
    `at_exit`: what ends that. `round` is that of its last try: an exception in here, or
    in the caller when this has returned (a signal's handler), is undone by it.
    """

    cdef readonly object resource
    cdef readonly object encode
    cdef readonly object ttl
    cdef readonly object timeout
    cdef readonly int64_t began_ns
    cdef readonly Round round
    cdef type lease_type
    cdef object keep
    cdef LockFields lock             # or None
    cdef BlockExit at_exit           # or None
    cdef bint is_entered             # the block of `lock`...
    cdef bint is_shown_entered       # ...and the observer was notified of that
    cdef object attempts             # once the first try was not won

    def __init__(
        self, DriverFields driver not None, type lease_type not None, resource, ttl,
        timeout, encode, keep=None, LockFields lock=None, BlockExit at_exit=None
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
        self.lock = lock
        self.at_exit = at_exit
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
        if self.is_entered:
            self.is_entered = False
            lock_forget(self.lock, self.value, self.at_exit)
        if self.round is not None:
            call_abandon(self, self.round)
        if self.is_shown_entered:
            self.is_shown_entered = False
            observer_notify(self.driver.observer, "left", (self.resource,))

    cdef bint swallows(self, object error) except -1:
        self.driver.observer.on_failed(error)
        return False


def acquire_in_c(type lease_type not None, encode, wanted):
    """Return a decorator: an awaitable client's `acquire`, a function of C.

    The method has its text, and refuses arguments that it does not have. CPython looks
    up the default of each parameter that is not given in a dictionary: a tenth of a
    pair with a idle key.
    """
    def in_c(method):
        def acquire(
            LocksFields self not None, resource=default_resource, *, ttl=None,
            timeout=None, keep_alive=False, on_lost=None, linger=None, permits=None,
            shared=False, **unknown,
        ):
            if unknown:
                method(self, **unknown)
            keep, encoding = None, encode
            if keep_alive or shared is not False or not (
                on_lost is None and linger is None and permits is None
            ):
                given = self._driver, ttl, timeout, keep_alive, on_lost, None, linger
                ttl, _, encoding, keep = wanted(*given, permits, shared)[:4]
            return AcquireCall(
                self._driver, lease_type, resource, ttl, timeout, encoding, keep
            )

        return update_wrapper(acquire, method)

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


cdef object acquire_end(AcquireCall self):
    cdef Round round = self.round
    self.attempts = None
    if round.verdict_code == VERDICT_WON:
        self.value = fields_lease(self.lease_type, self.driver, self.resource, round)
        if self.lock is not None:
            lock_note(self.lock, self.value, call_caller(self), self.at_exit)
            self.is_entered = True
    if self.driver.observer is not no_observer:
        observer_on_acquired(self.driver.observer, self.resource, round)
        if self.is_entered:
            self.is_shown_entered = True
            observer_notify(self.driver.observer, "entered", (self.resource,))
    if self.keep is not None and self.value is not None:
        self.keep.begin(self.value)


cdef Round acquire_first_try(AcquireCall self):
    # Return the round to be run, or one that an idle key here has won. None: these
    # arguments, or this moment, are not the common case, and nothing was done; the
    # attempts check them. The key is checked.
    cdef DriverFields driver = self.driver
    cdef Engine engine = driver.engine
    cdef Terms terms = driver.default_terms
    cdef int64_t timeout_ns
    cdef Round round
    cdef bint waits, is_drawn_later
    if self.keep is not None:
        self.keep.check(driver, self.ttl)
    key = first_try_key(self.resource, self.encode)
    timeout_ns = first_try_timeout_ns(self.timeout)
    if self.ttl is not None:
        terms = fields_terms(driver, self.ttl)
    if timeout_ns == NO_PLAIN_TIMEOUT:
        return None
    if terms.idle_ns and engine.idle.keys and type(key) is bytes:
        round = round_new(
            OPERATION_ACQUIRE, <bytes>engine_keys(engine, key), HANDED_ON, terms,
            engine.electorate,
        )
        if idle_take(engine, round, fields_now_ns(driver)):
            round_set_caller(round, 1, self.began_ns, 0)
            return round
    waits = timeout_ns != 0 and type(key) is not tuple and (
        engine_is_contended(engine, key, self.began_ns)
    )
    if waits and not acquire_may_wait(self, key):
        return None
    # One that waits for a lease that is handed on needs no token.
    is_drawn_later = waits and type(key) is bytes and (
        driver.token_source is not None and terms.idle_ns == 0
    )
    round = engine_new_round(
        engine, OPERATION_ACQUIRE, key,
        HANDED_ON if is_drawn_later
        else driver.settings.new_token() if driver.token_source is None
        else tokens_draw(driver.token_source),
        terms,
    )
    if waits:
        round_wait_in_turn(round, turn_new(
            self.began_ns, False, -1 if timeout_ns < 0 else self.began_ns + timeout_ns
        ))
    if timeout_ns > 0:      # as time_for_round
        timeout_ns = max(timeout_ns, round_last_ns(terms, engine.round_trip_ns))
    round_set_caller(round, 1, self.began_ns, timeout_ns)
    return round


def check_acquire(DriverFields driver not None, resource, ttl, timeout, encode):
    """Raise ConfigurationError for what an acquire by these arguments would refuse.

    A function, which gives the resource of each call, is not called.
    """
    if resource is default_resource:
        resource = driver.settings.resource
    if not callable(resource):
        engine_keys(driver.engine, first_try_key(resource, encode))
    fields_terms(driver, ttl)
    if first_try_timeout_ns(timeout) == NO_PLAIN_TIMEOUT:
        driver.timeout_ns(timeout)


cdef bint acquire_may_wait(AcquireCall self, object key) except -1:
    # Return whether a first try may queue: not if the policy polls, or the attempts
    # refuse it or warn, because its caller is in a block of this key, or blocks a loop.
    cdef DriverFields driver = self.driver
    if not driver.waits_in_turn:
        return False
    if self.blocks and running_loop() is not None:
        return False
    if not driver.entered:
        return True
    if type(key) is Permits:
        return False
    block = driver.entered.get(engine_keys(driver.engine, key))
    return block is None or (<Block>block).caller != call_caller(self)


cdef int64_t first_try_timeout_ns(object timeout) except? NO_PLAIN_TIMEOUT:
    # Do as timeout_to_ns, which is asked about all that is not plain; -1: no limit.
    if timeout is None:
        return -1
    if (type(timeout) is float or type(timeout) is int) and (
        0 <= timeout <= PLAIN_TIMEOUT
    ):
        return <int64_t>(<double>timeout * 1e9)
    return NO_PLAIN_TIMEOUT


cdef object first_try_key(object resource, object encode):
    # Do as `encode` does, which is asked about all that is not plain.
    cdef bytes key = None
    if type(resource) is bytes:
        key = resource
    elif type(resource) is str:
        try:
            key = (<str>resource).encode("utf-8")
        except UnicodeEncodeError:
            pass
    if key is None or not 0 < len(key) <= PLAIN_SIZE or (
        # All our keys have this. (`in` of bytes makes an exception, 0.3 us.)
        memmem(<const char *>key, len(key), b"fastredlock:", 12) != NULL
    ):
        return encode(resource)
    if type(encode) is SharedOf:
        return Shared(key)
    return Permits(key, (<PermitsOf>encode).count) if type(encode) is PermitsOf else key
