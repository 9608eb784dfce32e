# The calls by which a lease is extended and given back: of one, of each of many, and at
# the end of a body, with the entries that tell which lease it was.

# --- lease ----------------------------------------------------------------------------
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
        release = fields_new_release(lease, driver.engine)
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
        self.round = fields_new_release(lease, self.driver.engine)
    lease._status = lease._unknown
    return call_abandon(self, self.round)


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


# --- each -----------------------------------------------------------------------------
# A call for each of many locks: their rounds in one batch, which is begun and read by
# an object of the shell (_locking/batch.py).


@cython.final
cdef class EachCall(Call):
    """An acquire, a release or an extension of each of many."""

    cdef type kind               # of `each`
    cdef tuple given             # its arguments
    cdef object each             # AcquireEach, ReleaseEach or ExtendEach, once begun
    cdef str called

    def __init__(self, DriverFields driver not None, str called not None, kind, *given):
        self.driver = driver
        self.called = called
        self.kind = kind
        self.given = given
        self.stage = CALL_NEW

    cdef object go_on(self):
        cdef Batch batch
        if self.each is None:
            self.each = self.kind(self.driver, *self.given)
            batch = self.each.begin()
            if batch.rounds or not self.kind.is_release:
                return batch      # else there is nothing to release: also when closed
        self.value = self.each.end()
        each_forget(self)

    cdef int give_up(self) except -1:
        return 0 if self.blocks and not self.kind.is_release else self.take_back()

    cdef int take_back(self) except -1:
        if self.each is None and self.kind.is_release and (
            self.blocks or self.here is not None
        ):
            self.each = self.kind(self.driver, *self.given)
        if self.each is not None:
            each_forget(self)
            call_abandon(self, self.each.rest())
        return 0

    cdef bint begins_when_cancelled(self) except -1:
        if self.kind.is_release:
            self.here = call_here_if_any(self.driver)
        return self.here is not None

    cdef str name(self):
        return self.called


def releases_in_c(type kind not None):
    """Return a decorator: a blocking `release_each`, a function of C as `release` is.

    The method has its text.
    """
    def in_c(method):
        def guarded(LocksFields self not None, leases):
            return call_run(
                EachCall(fields_driver(self), "release_each", kind, leases)
            )

        return dressed(guarded, method)

    return in_c


cdef int each_forget(EachCall self) except -1:
    # Take each extension out of the table of its lease: left behind it would bound all
    # later ones. By C, however the call ends.
    cdef list tables = self.each.under_way
    cdef list extensions = self.each.extensions
    cdef Py_ssize_t i
    for i in range(len(extensions)):
        if tables[i] is not None:
            (<dict?>tables[i]).pop(extensions[i], None)
    return 0


awaiting_set_slots(EachCall)


# --- entries --------------------------------------------------------------------------
# The entries of a lock object: which lease a with block gives back when it is left.
#
# Theory of operation. One lock object is entered as often as its users like, by many
# threads, greenlets and tasks, and each entry has a lease of its own. `__exit__` is not
# given the entry that it belongs to. So an entry is kept with the frame whose with
# statement made it, which alone leaves it, by whatever thread: a generator may be ended
# on another thread of a pool than the one that began it. What was entered otherwise, by
# an ExitStack, is kept with its caller, and a caller leaves its own, the last one
# first. Where one entry alone is outstanding, or one and the blocks that its caller
# joined to it, it is the last of these, whoever leaves. Else a caller without an entry
# of its own gets an error: never the lease of another.
#
# `_entries` of a lock is None or (caller, lease, the entries before it, frame). A block
# that joins another has a call of its own in place of a lease (reentrant.py). A caller
# is a number: that of a thread's state, which no later thread has; or it has a weak
# reference to a greenlet or a task, which no later one at the same address equals. A
# task's own frames are not kept: it has none but one caller. An asynchronous generator
# has several.
#
# An entry is noted and taken off by functions of C, for the reason given in lease:
# no signal comes between the end of a body and the release of its lease. Before 3.12 a
# collection may run at each object that is made here, and in its finalizers another
# entry may come: so the list is set only where it is still the one that was read.


cdef class LockEntries:
    """The base of a lock object: the entries that were not left."""

    cdef tuple entries

    @property
    def _entries(self):
        return self.entries

    @_entries.setter
    def _entries(self, tuple entries not None):
        # An awaitable lock's: the lease learns which task a loss would cancel.
        cdef LeaseFields lease
        try:
            frame = get_frame(1)
        except ValueError:
            frame = None
        if frame is not None and not frame_flags(frame) & CO_ASYNC_GENERATOR:
            frame = None
        self.entries = (entries[0], entries[1], entries[2], frame)
        if isinstance(entries[1], LeaseFields):
            lease = <LeaseFields>entries[1]
            lease._round.entered_by = entries[0]
            fields_enter(lease, entries[0], None)


def lock_enter(LockEntries self not None, entered not None):
    """Note that the calling thread or greenlet has entered by this; return its lease.

    By a lease, or by what joins another block: that has the other's. An awaitable lock
    does that in Python, in one step of its loop's thread: it sets `_entries`, after
    which no signal is looked at.
    """
    caller, frame = calling_thread(), fields_frame(1)
    if isinstance(entered, LeaseFields):
        fields_enter(<LeaseFields>entered, caller, frame)
    self.entries = (caller, entered, self.entries, frame)
    return entered._lease


def lock_undo(LockEntries self not None, call not None):
    """Roll back an entry that was interrupted, whether it was noted or not."""
    cdef tuple entry = self.entries
    while entry is not None and not lock_is_of(entry[1], call):
        entry = entry[2]
    if entry is not None:
        lock_take_off(self, entry[1])
        if isinstance(entry[1], LeaseFields):
            fields_leave(<LeaseFields>entry[1])
    if isinstance(call, AcquireCall):
        undo(call)


cdef bint lock_is_of(object entered, object call):
    # An acquire's entry holds the lease of its round; a block that joins is its own.
    if not isinstance(call, AcquireCall) or not isinstance(entered, LeaseFields):
        return entered is call
    return (<LeaseFields>entered)._round is (<AcquireCall>call).round


def lock_leave(LockEntries self not None, kind, error, traceback):
    """Leave the lease of the caller's last entry: the lock's `__exit__`."""
    try:
        lease = lock_take(self, False)
    except BaseException:      # as below
        lease = lock_take(self, False)
        if lease is not None:
            lease.__exit__(kind, error, traceback)
        raise
    if lease is not None:
        return lease.__exit__(kind, error, traceback)
    if error is None:
        raise self._not_entered()


def lock_leave_awaited(LockEntries self not None, kind, error, traceback):
    """Return what to await to leave it: the lock's `__aexit__`."""
    try:
        lease = lock_take(self, True)
    except BaseException:
        # A signal's handler raised while the task was looked up; nothing was taken off
        # yet. Take it now: its release is sent, though nobody awaits it.
        lease = lock_take(self, True)
        if isinstance(lease, LeaseFields):
            lease.__aexit__(kind, error, traceback)
        raise
    if lease is not None:
        return lease.__aexit__(kind, error, traceback)
    if error is None:
        raise self._not_entered()
    return nothing()


async def nothing():
    """Do nothing, awaited."""


cdef object lock_take(LockEntries self, bint is_awaitable):
    # Take the entry that the caller leaves off the list; None where there is none.
    cdef tuple entries, found
    entries = self.entries
    if entries is None:
        return None
    if entries[2] is None:
        self.entries = None
        return entries[1]
    found = lock_entry_of_frame(entries)
    if found is None:
        caller = lock_calling_task(self) if is_awaitable else calling_thread()
        entries = found = lock_without_frames(self.entries)
        while found is not None and found[0] != caller:
            found = found[2]
        if found is None and entries is not None and lock_is_of_one_lease(entries):
            found = entries
    if found is None:
        return None
    lock_take_off(self, found[1])
    return found[1]


cdef tuple lock_entry_of_frame(tuple entries):
    # The last entry of the with statement that ends now, or None.
    cdef PyObject *frame = <PyObject *>PyEval_GetFrame()
    cdef bytes code
    while entries is not None and <PyObject *>entries[3] != frame:
        entries = entries[2]
    if entries is not None:
        code = entries[3].f_code.co_code
        if not LEAVES_WITH(
            <const unsigned char *>PyBytes_AS_STRING(code), entries[3].f_lasti
        ):
            return None
    return entries


cdef tuple lock_without_frames(tuple entries):
    # The entries that any frame may leave.
    if entries is None:
        return None
    rest = lock_without_frames(entries[2])
    return rest if entries[3] is not None else (entries[0], entries[1], rest)


cdef bint lock_is_of_one_lease(tuple entries) except -1:
    # Whether one caller alone has entered, by a lease and the blocks that join it.
    cdef tuple entry = entries
    while not isinstance(entry[1], LeaseFields) and entry[2] is not None:
        entry = entry[2]
        if entry[0] != entries[0]:
            return False
    return entry[2] is None


cdef int lock_take_off(LockEntries self, object lease) except -1:
    cdef tuple entries, rest
    while True:
        entries = self.entries
        rest = lock_entries_without(entries, lease)
        if self.entries is entries:
            self.entries = rest
            return 0


cdef tuple lock_entries_without(tuple entries, object lease):
    cdef tuple entry, rest = entries
    cdef list later = []
    while rest is not None and rest[1] is not lease:
        later.append(rest)
        rest = rest[2]
    if rest is None:
        return entries
    rest = rest[2]
    for entry in reversed(later):
        rest = (entry[0], entry[1], rest, entry[3])
    return rest


cdef object lock_calling_task(object self):
    driver = self._driver.current
    return None if driver is None else driver.caller()
