# The calls by which a lease is extended and given back: of one, of each of many, and at
# the end of a body, with the entries by which its lease is found.

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
#
# CPython 3.14 calls `__enter__` by an instruction of its own, behind which it looks for
# signals when the block has not begun: nothing calls `__exit__`. But the statement has
# looked that up before, and drops it. So a lease gives each statement an object that
# releases the lease where it goes without a call. (A lock's `__enter__` is a function
# of Python: behind its return no signal is looked at.)


cdef class ReleaseCall(Call):
    cdef LeaseFields lease
    cdef Round round             # None: nothing to be released
    cdef int64_t left_ns         # before it, for an observer
    cdef bint is_begun

    cdef object go_on(self):
        cdef LeaseFields lease = self.lease
        cdef DriverFields driver = self.driver
        if not self.is_begun:
            self.is_begun = True
            if driver.observer is not no_observer:
                self.left_ns = fields_left_ns(lease, driver)
            self.round = fields_begin_release(lease, driver.engine, lease._unknown)
            if self.round is None:
                self.value = lease._gone
            return self.round
        if self.round.verdict_code == VERDICT_WON:
            lease._status = lease._released
        else:
            lease._end_release(self.round)
        if driver.observer is not no_observer and self.left_ns != NOT_OURS:
            driver.observer.on_end(lease, self.left_ns)
        self.value = lease._status

    cdef int give_up(self) except -1:
        cdef LeaseFields lease = self.lease
        if not self.blocks and (
            self.here is None or self.is_begun and lease._status is None
        ):
            return 0      # it is still held
        return release_send(self)

    cdef bint is_sent_anyway(self) except -1:
        return True


cdef ReleaseCall release_new(type call_type, LeaseFields lease):
    cdef ReleaseCall call = call_type.__new__(call_type)
    call.driver = <DriverFields?>lease._driver
    call.lease = lease
    call.called = "Lease.release"
    return call


cdef int release_send(ReleaseCall self) except -1:
    # Unless it is over, or a parent's.
    cdef LeaseFields lease = self.lease
    if lease._round.generation != current_generation or not (
        lease._status is None or lease._status is lease._unknown
    ):
        return 0
    if self.round is None:
        self.round = fields_new_release(lease, self.driver.engine)
    lease._status = lease._unknown
    return call_abandon(self, self.round)


def release_in_c(method):
    """Return a lease's `release`, a function of C; `method` has its text."""
    def release(LeaseFields self not None):
        return call_begin(release_new(ReleaseCall, self))

    return update_wrapper(release, method)


# --- the ends of a body ---------------------------------------------------------------


@cython.final
cdef class ExitCall(ReleaseCall):
    """The end of a body by a lease: its `__exit__`, or `__aexit__`."""

    cdef object error            # of the body
    cdef bint is_cancelled       # the body, because its lease was lost
    cdef bint releases           # the body has not released it
    cdef bint is_left
    cdef int64_t overrun_ns      # of the validity by the body; 0: none, or not known

    cdef object go_on(self):
        cdef LeaseFields lease = self.lease
        cdef int64_t until_ns
        if self.is_begun:
            ReleaseCall.go_on(self)
            return exit_end(self, self.value)
        self.is_begun = True
        fields_on_block(lease, self.driver, "left")
        if lease._round.lease_state is not None:      # it may be kept
            self.is_cancelled = lease._leave_body(self.error)
        if lease._status is not None:      # the body released it
            return exit_end(self, None)
        self.releases = True
        self.left_ns = fields_left_ns(lease, self.driver)
        until_ns = fields_until_ns(lease)
        if self.left_ns == 0 and until_ns > 0:
            self.overrun_ns = fields_now_ns(self.driver) - until_ns
        self.round = fields_begin_release(lease, self.driver.engine, lease._unknown)
        return exit_end(self, lease._gone) if self.round is None else self.round

    cdef int give_up(self) except -1:
        cdef DriverFields driver = self.driver
        if not self.releases and self.lease._status is not None:
            return 0
        if not self.blocks and self.here is None:
            try:
                if driver.current is None or not driver.current.is_here():
                    return 0
            except RuntimeError:      # no loop runs
                return 0
            self.here = driver.current
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


cdef ExitCall exit_new(LeaseFields lease, object error):
    cdef ExitCall call = <ExitCall>release_new(ExitCall, lease)
    fields_leave(lease)
    call.error = error
    call.called = "Lease.__aexit__"
    return call


cdef int exit_unbegun(LeaseFields lease) except -1:
    # Of a blocking lease, whose block does not begin.
    cdef ExitCall call = exit_new(lease, None)
    call.blocks = True
    release_send(call)


def exit_lease(LeaseFields self not None, error_type, error, traceback):
    """Leave a with block by a lease: its `__exit__`, or its `__aexit__`."""
    return call_begin(exit_new(self, error))


@cython.final
cdef class WithExit:
    """What a with statement has of a lease until it ends."""

    cdef LeaseFields lease       # None: it was called

    def __call__(self, error_type, error, traceback):
        lease, self.lease = self.lease, None
        return call_begin(exit_new(lease, error))

    def __del__(self):
        if self.lease is not None:
            exit_unbegun(self.lease)


@cython.final
cdef class LeaseExit:
    """A lease's `__exit__`: of a with statement, and as a method for all else."""

    def __get__(self, lease, owner):
        cdef WithExit of_block
        cdef bytes code
        frame = None if lease is None else frame_at(0)
        if frame is not None:
            code = frame.f_code.co_code
            if loads_exit(code, frame.f_lasti):
                of_block = WithExit.__new__(WithExit)
                of_block.lease = lease
                return of_block
        return exit_lease.__get__(lease, owner)


lease_exit = LeaseExit() if ENTERS_BY_CALL else exit_lease


cdef int lease_check_entry(LeaseFields lease) except -1:
    # No body runs by a lease that is over. (Of an adopted one nothing is known.)
    cdef int64_t left_ns = fields_left_ns(lease, <DriverFields?>lease._driver)
    if left_ns == 0 or left_ns == NOT_OURS:
        lease.check()


@cython.final
cdef class EntryCall(Call):
    """The way into an `async with` by a lease: its `__aenter__`."""

    cdef LeaseFields lease
    cdef bint releases           # where it is left: the block does not begin

    cdef object go_on(self):
        # A loss cancels the body of one that is kept, from now on or later.
        cdef Round grant = self.lease._round
        self.releases = False
        lease_check_entry(self.lease)
        self.releases = True
        grant.entered_by = self.here.caller()
        fields_enter(self.lease, grant.entered_by, None)
        if grant.lease_state is not None:
            self.lease._enter_kept()
        fields_on_block(self.lease, self.driver, "entered")
        self.value = self.lease

    cdef int give_up(self) except -1:
        if self.releases:
            exit_new(self.lease, None)      # not awaited, its release is sent

    cdef bint is_owed(self) noexcept:
        return self.releases


def enter(LeaseFields self not None):
    """Return the lease itself: its `__enter__`."""
    lease_check_entry(self)
    try:
        fields_enter(self, calling_thread(), frame_entering(frame_at(0)))
        fields_on_block(self, self._driver, "entered")
    except BaseException:      # an observer was interrupted
        exit_unbegun(self)
        raise
    return self


def enter_lease(LeaseFields self not None):
    """Return what to await to enter by it, which is the lease: its `__aenter__`."""
    cdef EntryCall call = EntryCall.__new__(EntryCall)
    call.driver = <DriverFields?>self._driver
    call.lease = self
    call.releases = ENTERS_BY_CALL and frame_entering(frame_at(0)) is not None
    call.called = "Lease.__aenter__"
    return call


# --- extending ------------------------------------------------------------------------


@cython.final
cdef class ExtendCall(Call):
    cdef LeaseFields lease
    cdef object ttl
    cdef bint is_by_hand         # a kept lease is not extended so
    cdef object extension        # itself, in the table...
    cdef object under_way        # ...of those that are under way
    cdef Round round

    def __init__(self, LeaseFields lease not None, ttl, bint is_by_hand=True):
        self.driver = <DriverFields?>lease._driver
        self.lease = lease
        self.ttl = ttl
        self.is_by_hand = is_by_hand
        self.extension = object()
        self.called = "Lease.extend"

    cdef object go_on(self):
        if self.round is None:
            self.under_way = self.lease._under_way()
            self.round = self.lease._begin_extend(
                self.ttl, self.extension, self.is_by_hand
            )
            return self.round
        self.value = self.lease._end_extend(self.round, self.extension)
        extension_forget(self.under_way, self.extension)
        self.driver.observer.on_extended(self.lease, self.value)

    cdef int give_up(self) except -1:
        extension_forget(self.under_way, self.extension)
        if self.round is not None and not (self.blocks or self.round.is_finished):
            call_abandon(self, self.round)

    cdef bint swallows(self, object error) except -1:
        self.driver.observer.on_extended(self.lease, error)
        return False


cdef int extension_forget(object under_way, object extension) except -1:
    # By C, however its call ends: left behind it would bound all later ones.
    if under_way is not None:
        (<dict?>under_way).pop(extension, None)


def guard_close(method):
    """Return a client's `__exit__` by C: interrupted, it closes all the same."""
    def guarded(self, error_type, error, traceback):
        try:
            return method(self, error_type, error, traceback)
        except BaseException:
            self.close()
            raise

    return update_wrapper(guarded, method)


# --- each -----------------------------------------------------------------------------
# A call for each of many locks: their rounds in one batch, which is begun and read by
# an object of the shell (_locking/each.py).


@cython.final
cdef class EachCall(Call):
    cdef type each_type          # of `each`
    cdef tuple given             # its arguments
    cdef object each             # AcquireEach, ReleaseEach or ExtendEach, once begun

    def __init__(
        self, DriverFields driver not None, str called not None, each_type, *given
    ):
        self.driver = driver
        self.called = called
        self.each_type = each_type
        self.given = given

    cdef object go_on(self):
        cdef Batch batch
        if self.each is None:
            self.each = self.each_type(self.driver, *self.given)
            batch = self.each.begin()
            if batch.rounds or not self.each_type.is_release:
                return batch      # else there is nothing to release: also when closed
        self.value = self.each.end()
        each_forget(self)

    cdef int give_up(self) except -1:
        return 0 if self.blocks and not self.each_type.is_release else self.take_back()

    cdef int take_back(self) except -1:
        if self.each is None and self.each_type.is_release and (
            self.blocks or self.here is not None
        ):
            self.each = self.each_type(self.driver, *self.given)
        if self.each is not None:
            each_forget(self)
            call_abandon(self, self.each.to_abandon())

    cdef bint is_sent_anyway(self) except -1:
        return self.each_type.is_release


cdef int each_forget(EachCall self) except -1:
    for under_way, extension in zip(self.each.under_way, self.each.extensions):
        extension_forget(under_way, extension)


def releases_in_c(type each_type not None):
    """Return a decorator: a blocking `release_each`, a function of C as `release` is.

    The method has its text.
    """
    def in_c(method):
        def release_each(LocksFields self not None, leases):
            return call_run(
                EachCall(self._driver, "release_each", each_type, leases)
            )

        return update_wrapper(release_each, method)

    return in_c


for _awaited in (AcquireCall, ReleaseCall, ExitCall, EntryCall, ExtendCall, EachCall):
    awaiting_set_slots(_awaited)


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
# An entry is (caller, lease, frame). A block that joins another has a call of its own
# in place of a lease (Join of _locking/lock.py). A caller is a number: that of a
# thread's state, which no later thread has; or it has a weak reference to a greenlet or
# a task, which no later one at the same address equals. A task's own frames are not
# kept: it has none but one caller. An asynchronous generator has several.
#
# An entry is noted and taken off by functions of C, for the reason given in lease:
# no signal comes between the end of a body and the release of its lease. Before 3.12 a
# finalizer may run at each object that is made here, and enter as well: so an entry is
# found again before it is taken off.


cdef class LockEntries:
    """The base of a lock object: the entries that were not left."""

    cdef readonly list _entries      # the last one last

    def __cinit__(self):
        self._entries = []

    @property
    def _last_entry(self):
        return self._entries[-1]

    @_last_entry.setter
    def _last_entry(self, tuple entry not None):
        # An awaitable lock's (caller, lease): a loss would cancel this task.
        caller, entered = entry
        frame = frame_at(1)
        if frame is not None and not frame.f_code.co_flags & CO_ASYNC_GENERATOR:
            frame = None
        self._entries.append((caller, entered, frame))
        if isinstance(entered, LeaseFields):
            (<LeaseFields>entered)._round.entered_by = caller
            fields_enter(<LeaseFields>entered, caller, None)


def lock_enter(LockEntries self not None, entered not None):
    """Note that the calling thread or greenlet has entered by this; return its lease.

    By a lease, or by what joins another block: that has the other's. An awaitable lock
    does that in Python, in one step of its loop's thread: it sets `_last_entry`, after
    which no signal is looked at.
    """
    caller, frame = calling_thread(), frame_entering(frame_at(1))
    if isinstance(entered, LeaseFields):
        fields_enter(<LeaseFields>entered, caller, frame)
    self._entries.append((caller, entered, frame))
    return entered._lease


def lock_undo(LockEntries self not None, call not None):
    """Roll back an entry that was interrupted, whether it was noted or not."""
    # An acquire's entry holds the lease of its round; a block that joins is its own.
    cdef bint acquires = isinstance(call, AcquireCall)
    cdef tuple entry
    for entry in reversed(self._entries):
        entered = entry[1]
        if entered is call or acquires and isinstance(entered, LeaseFields) and (
            (<LeaseFields>entered)._round is (<AcquireCall>call).round
        ):
            lock_take_off(self, entry)
            if acquires:
                fields_leave(<LeaseFields>entered)
            break
    if acquires:
        undo(call)


def lock_leave(LockEntries self not None, error_type, error, traceback):
    """Leave the lease of the caller's last entry; return what to await for that.

    The lock's `__exit__`, or its `__aexit__`.
    """
    cdef bint blocks = self._driver.blocks
    try:
        entered = lock_take(self, blocks)
    except BaseException:
        # A signal's handler raised while the task was looked up; nothing was taken off
        # yet. Take it now: its release is sent, though nobody awaits it.
        entered = lock_take(self, blocks)
        if isinstance(entered, LeaseFields):
            call_begin(exit_new(<LeaseFields>entered, error))
        raise
    if isinstance(entered, LeaseFields):
        return call_begin(exit_new(<LeaseFields>entered, error))
    if entered is None and error is None:
        raise self._not_entered()
    return None if blocks else nothing()      # it had joined another block


async def nothing():
    """Do nothing, awaited."""


cdef object lock_take(LockEntries self, bint blocks):
    # Take the entry that the caller leaves off the list; None where there is none.
    cdef list entries = self._entries
    cdef tuple entry
    entry = entries[0] if len(entries) == 1 else lock_entry_left(self, blocks)
    if entry is None:
        return None
    lock_take_off(self, entry)
    return entry[1]


cdef tuple lock_entry_left(LockEntries self, bint blocks):
    # The last entry of the with statement that ends now, or of the caller, or None.
    cdef PyObject *frame = <PyObject *>PyEval_GetFrame()
    cdef bytes code
    cdef tuple entry
    for entry in reversed(self._entries):
        if <PyObject *>entry[2] == frame:
            code = entry[2].f_code.co_code
            if leaves_with(code, entry[2].f_lasti):
                return entry
    current = None if blocks else self._driver.current
    caller = calling_thread() if blocks else current and current.caller()
    others = [entry for entry in reversed(self._entries) if entry[2] is None]
    for entry in others:
        if entry[0] == caller:
            return entry
    for entry in others[:-1]:      # is it one lease, and what its caller joined to it?
        if isinstance(entry[1], LeaseFields) or entry[0] != others[-1][0]:
            return None
    return others[0] if others else None


cdef int lock_take_off(LockEntries self, tuple entry) except -1:
    cdef list entries = self._entries
    cdef Py_ssize_t at
    for at in range(len(entries)):
        if entries[at] is entry:
            del entries[at]
            break
