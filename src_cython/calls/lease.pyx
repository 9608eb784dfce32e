# To extend and to release a lease, and both ends of a body by it.
#
# A release that has begun is sent, whatever exception leaves it: that of a blocking
# lease, and the one at the end of a body, also where it had not begun. A forked child
# has none of its parent's leases, and a loop's engine is left to the loop's thread.
#
# CPython looks for signals at the first instruction of a Python function, before any
# `try` of it: between the body of a with block and the first line of its `__exit__`
# Ctrl-C left a key for its ttl. A function of C has no instructions, so no signal is
# handled between the end of the body and the `try` of the call, nor while an exception
# from it is handled. threading.Lock is left in the same way. (A lock's: entries.)


cdef class ReleaseCall(Call):
    """A release of a lease."""

    cdef LeaseFields lease
    cdef Round round             # None: nothing to be released
    cdef int64_t left_ns         # before it
    cdef bint is_begun
    cdef bint is_cancelled_early

    def __init__(self, LeaseFields lease not None):
        release_init(self, lease)

    cdef object go_on(self):
        cdef LeaseFields lease = self.lease
        if self.is_begun:
            return release_end(self)
        self.is_begun = True
        self.left_ns = fields_left_to_report(lease, self.driver)
        self.round = fields_begin_release(lease, self.driver.engine, lease._unknown)
        if self.round is None:
            self.value = lease._gone
        return self.round

    cdef int give_up(self) except -1:
        cdef LeaseFields lease = self.lease
        if lease._round.generation != current_generation:
            return 0
        if not self.blocks and (self.here is None or (
            lease._status is None and not self.is_cancelled_early
        )):
            return 0      # it is still held
        if lease._status is None or lease._status is lease._unknown:
            release_send(self)
        return 0

    cdef bint begins_when_cancelled(self) except -1:
        self.here = call_here_if_any(self.driver)
        self.is_cancelled_early = self.here is not None
        return self.is_cancelled_early

    cdef str name(self):
        return "Lease.release"


cdef ReleaseCall release_new(type kind, LeaseFields lease):
    cdef ReleaseCall call
    try:
        call = kind.__new__(kind)
    except MemoryError:      # the release has to be sent: once more, or without one
        try:
            call = kind.__new__(kind)
        except MemoryError:
            release_send_alone(lease)
            raise
    release_init(call, lease)
    return call


cdef int release_send_alone(LeaseFields lease) except -1:
    # A blocking one: an awaited call is made before its task is asked to wait.
    cdef DriverFields driver = <DriverFields?>lease._driver
    if lease._status is None and driver.runs_in_core and driver.current is None and (
        (<Round>lease._round).generation == current_generation
    ):
        release = lease_new_release(lease, driver.engine)
        lease._status = lease._unknown
        blocking_abandon(driver.engine, release)
    return 0


cdef int release_init(ReleaseCall self, LeaseFields lease) except -1:
    self.driver = <DriverFields?>lease._driver
    self.lease = lease
    self.stage = CALL_NEW
    return 0


cdef object release_end(ReleaseCall self):
    cdef LeaseFields lease = self.lease
    if self.round.verdict_code == VERDICT_WON:
        lease._status = lease._released
    else:
        lease._end_release(self.round)
    fields_on_released(lease, self.driver, self.left_ns)
    self.value = lease._status


cdef int release_send(ReleaseCall self) except -1:
    cdef LeaseFields lease = self.lease
    if self.round is None:
        self.round = lease_new_release(lease, self.driver.engine)
    lease._status = lease._unknown
    return call_abandon(self, self.round)


cdef Round lease_new_release(LeaseFields lease, Engine engine):
    # As _new_release.
    cdef Round taken = lease._round
    lease_state = taken.lease_state
    extensions = None if lease_state is None else lease_state.extensions
    return engine_new_release(
        engine, taken,
        taken.terms if extensions is None else <Terms?>extensions.longest_terms,
    )


def release_in_c(method):
    """Return a blocking lease's `release`, a function of C; `method` has its text."""
    def guarded(LeaseFields self not None):
        return call_run(release_new(ReleaseCall, self))

    return dressed(guarded, method)


def awaited_release_in_c(method):
    """Return an awaitable lease's `release` likewise: what to await for it."""
    def begun(LeaseFields self not None):
        return release_new(ReleaseCall, self)

    return dressed(begun, method)


# --- the ends of a body ---------------------------------------------------------------


@cython.final
cdef class ExitCall(ReleaseCall):
    """The end of a body by a lease: its `__exit__`, or `__aexit__`."""

    cdef object kind, error, traceback      # of the body
    cdef bint is_cancelled       # the body, because its lease was lost
    cdef bint releases           # the body has not released it
    cdef bint is_left
    cdef int64_t overrun_ns      # of the validity by the body; 0: none, or not known

    cdef object go_on(self):
        cdef LeaseFields lease = self.lease
        if self.is_begun:
            release_end(self)
            return exit_end(self, self.value)
        self.is_begun = True
        fields_on_block(lease, self.driver, "left")
        if lease._round.lease_state is not None:      # it may be kept
            self.is_cancelled = lease._leave_body(self.error)
        if lease._status is not None:      # the body released it
            return exit_end(self, None)
        self.releases = True
        self.left_ns = fields_left_ns(lease, self.driver)
        if self.left_ns == 0 and fields_until_ns(lease) > 0:
            self.overrun_ns = fields_now_ns(self.driver) - fields_until_ns(lease)
        self.round = fields_begin_release(lease, self.driver.engine, lease._unknown)
        if self.round is None:
            return exit_end(self, lease._gone)
        return self.round

    cdef int give_up(self) except -1:
        cdef LeaseFields lease = self.lease
        if lease._round.generation != current_generation or not (
            lease._status is None
            or self.releases and lease._status is lease._unknown
        ):
            return 0
        if not self.blocks and self.here is None:
            if not call_is_here(self.driver):
                return 0
            self.here = self.driver.current
        return release_send(self)

    cdef bint is_owed(self) noexcept:
        # A signal is handled behind the call of `__aexit__`, before it is awaited.
        return not self.blocks

    cdef bint swallows(self, object error) except -1:
        # Where its release has failed the error of the body is raised.
        if self.is_left or self.error is None or not isinstance(error, Exception):
            return False
        exit_raise_loss(self)
        return True

    cdef str name(self):
        return "Lease.__aexit__"


cdef object exit_end(ExitCall self, object status):
    # status: None where the body has released it.
    cdef LeaseFields lease = self.lease
    self.value = None
    self.is_left = True
    exit_raise_loss(self)
    if self.error is None and status is not None and (
        self.left_ns <= 0 or status is lease._gone
    ):
        lease._check_exit(status, self.left_ns, self.overrun_ns)


cdef int exit_raise_loss(ExitCall self) except -1:
    # In place of the cancellation by which the body was left.
    if self.is_cancelled:
        loss = self.lease._loss()
        if loss is not None:
            raise loss from self.error
    return 0


cdef ExitCall exit_new(LeaseFields lease, object kind, object error, object traceback):
    cdef ExitCall call = <ExitCall>release_new(ExitCall, lease)
    fields_leave(lease)
    call.kind = kind
    call.error = error
    call.traceback = traceback
    return call


def exit_lease(LeaseFields self not None, kind, error, traceback):
    """Leave a with block by a blocking lease: its `__exit__`."""
    return call_run(exit_new(self, kind, error, traceback))


def leave_lease(LeaseFields self not None, kind, error, traceback):
    """Return what to await to leave it: its `__aexit__`."""
    return exit_new(self, kind, error, traceback)


cdef int lease_check_entry(LeaseFields lease) except -1:
    # No body runs by a lease that is over. (Of an adopted one nothing is known.)
    cdef int64_t left_ns = fields_left_ns(lease, <DriverFields?>lease._driver)
    if left_ns == 0 or left_ns == NOT_OURS:
        lease.check()
    return 0


@cython.final
cdef class EntryCall(Call):
    """The way into an `async with` by a lease: its `__aenter__`."""

    cdef LeaseFields lease

    cdef object go_on(self):
        # A loss cancels the body of one that is kept, from now on or later.
        cdef Round taken = self.lease._round
        lease_check_entry(self.lease)
        taken.entered_by = self.here.caller()
        fields_enter(self.lease, taken.entered_by, None)
        if taken.lease_state is not None:
            self.lease._enter_kept()
        fields_on_block(self.lease, self.driver, "entered")
        self.value = self.lease

    cdef int give_up(self) except -1:
        fields_leave(self.lease)
        return 0

    cdef str name(self):
        return "Lease.__aenter__"


def enter(LeaseFields self not None):
    """Return the lease itself: its `__enter__`."""
    cdef DriverFields driver = self._driver
    lease_check_entry(self)
    fields_enter(self, calling_thread(), fields_frame(0))
    fields_on_block(self, driver, "entered")
    return self


def enter_lease(LeaseFields self not None):
    """Return what to await to enter by it, which is the lease: its `__aenter__`."""
    cdef EntryCall call = EntryCall.__new__(EntryCall)
    call.driver = <DriverFields?>self._driver
    call.lease = self
    call.stage = CALL_NEW
    return call


# --- extending ------------------------------------------------------------------------


@cython.final
cdef class ExtendCall(Call):
    """An extension of a lease."""

    cdef LeaseFields lease
    cdef object ttl
    cdef object extension        # itself, in the table...
    cdef dict under_way          # ...of those that are under way
    cdef Round round

    def __init__(self, LeaseFields lease not None, ttl):
        self.driver = <DriverFields?>lease._driver
        self.lease = lease
        self.ttl = ttl
        self.extension = object()
        self.stage = CALL_NEW

    cdef object go_on(self):
        if self.round is None:
            self.under_way = self.lease._under_way()
            self.round = self.lease._begin_extend(self.ttl, self.extension)
            return self.round
        self.value = self.lease._end_extend(self.round, self.extension)
        extend_forget(self)
        self.driver.observer.on_extended(self.lease, self.value)

    cdef int give_up(self) except -1:
        # Taken out by C however it ends: left behind it would bound all later ones.
        extend_forget(self)
        if self.round is not None and not (self.blocks or self.round.is_finished):
            call_abandon(self, self.round)
        return 0

    cdef bint swallows(self, object error) except -1:
        self.driver.observer.on_extended(self.lease, error)
        return False

    cdef str name(self):
        return "Lease.extend"


cdef int extend_forget(ExtendCall self) except -1:
    if self.under_way is not None:
        self.under_way.pop(self.extension, None)
    return 0


# --- functions of C in place of methods -----------------------------------------------


def guard_close(method):
    """Return a client's `__exit__` likewise: interrupted, it closes all the same."""
    def guarded(self, kind, error, traceback):
        try:
            return method(self, kind, error, traceback)
        except BaseException:
            self.close()
            raise

    return dressed(guarded, method)


awaiting_set_slots(ReleaseCall)
awaiting_set_slots(ExitCall)
awaiting_set_slots(EntryCall)
awaiting_set_slots(ExtendCall)
