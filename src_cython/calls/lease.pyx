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
# looked that up before, and drops it: see blocks.


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
            self.round = fields_begin_release(lease)
            if self.round is None:
                self.value = STATUS_GONE
            return self.round
        if self.round.verdict_code == VERDICT_WON:
            lease._status = STATUS_RELEASED
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
    # Send the release, unless the lease is over, or a parent's.
    cdef LeaseFields lease = self.lease
    if lease._round.generation != current_generation or not (
        lease._status is None or lease._status is STATUS_UNKNOWN
    ):
        return 0
    if self.round is None:
        self.round = fields_new_release(lease)
    lease._status = STATUS_UNKNOWN
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
        self.round = fields_begin_release(lease)
        return exit_end(self, STATUS_GONE) if self.round is None else self.round

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
        self.left_ns <= 0 or status is STATUS_GONE
    ):
        lease._check_exit(status, self.left_ns, self.overrun_ns)


cdef int exit_raise_loss(ExitCall self) except -1:
    # Raise the loss in place of the cancellation by which the body was left.
    if self.is_cancelled:
        loss = self.lease._loss()
        if loss is not None:
            raise loss from self.error


cdef ExitCall exit_new(LeaseFields lease, object error):
    cdef ExitCall call = <ExitCall>release_new(ExitCall, lease)
    call.error = error
    call.called = "Lease.__aexit__"
    return call


cdef int exit_unbegun(LeaseFields lease) except -1:
    # Its block does not begin: its release is sent, and not awaited.
    cdef ExitCall call = exit_new(lease, None)
    call.blocks = call.driver.blocks
    if call.blocks:
        release_send(call)


cdef object exit_by(LeaseFields lease, object error):
    # Leave the block; if others that joined are there: None, or what awaits nothing.
    if block_leave(lease):
        return call_begin(exit_new(lease, error))
    return None if (<DriverFields>lease._driver).blocks else nothing()


async def nothing():
    """Do nothing, awaited."""


def exit_lease(LeaseFields self not None, error_type, error, traceback):
    """Leave a with block by a lease: its `__exit__`, or its `__aexit__`."""
    return exit_by(self, error)


@cython.final
cdef class EntryCall(Call):
    """The way into a block by a lease that is there, or by one of a block to join."""

    cdef LeaseFields lease
    cdef LockFields lock         # that joins, or None
    cdef BlockExit at_exit       # or None
    cdef bint is_entered         # by its lease, which is left if this fails
    cdef bint is_owed_release    # also where this was not begun: see blocks

    cdef object go_on(self):
        # No body runs by a lease that is over. (Of an adopted one nothing is known.)
        cdef LeaseFields lease = self.lease
        cdef int64_t left_ns = fields_left_ns(lease, self.driver)
        self.is_owed_release = False
        if left_ns == 0 or left_ns == NOT_OURS:
            lease.check()
        self.value = lease
        if self.lock is not None:
            lock_note(self.lock, lease, call_caller(self), self.at_exit)
            return None
        if not block_is_open(lease._block):      # else it leaves the one that is there
            block_enter(lease, call_caller(self))
            self.is_entered = True
        if self.at_exit is not None:
            self.at_exit.lease = lease
        # A loss cancels the body of one that is kept, from now on or later.
        if not self.blocks and lease._round.lease_state is not None:
            lease._enter_kept()
        fields_on_block(lease, self.driver, "entered")

    cdef int give_up(self) except -1:
        if self.at_exit is not None:
            self.at_exit.lease = None
        if block_leave(self.lease) if self.is_entered else self.is_owed_release:
            exit_unbegun(self.lease)

    cdef bint is_owed(self) noexcept:
        return self.is_owed_release


cdef EntryCall entry_new(LeaseFields lease, LockFields lock, BlockExit at_exit):
    cdef EntryCall call = EntryCall.__new__(EntryCall)
    call.driver = <DriverFields?>lease._driver
    call.lease = lease
    call.lock = lock
    call.at_exit = at_exit
    call.called = "Lease.__aenter__"
    return call


def enter(LeaseFields self not None):
    """Return the lease itself, or what to await for it: `__enter__`, `__aenter__`."""
    cdef BlockExit at_exit = block_exit(self)
    cdef EntryCall call = entry_new(self, None, at_exit)
    call.is_owed_release = (
        EXIT_MAY_BE_DROPPED and at_exit is not None and not block_is_open(self._block)
    )
    return call_begin(call)


def joining(LeaseFields lease not None, LockFields lock not None, BlockExit at_exit):
    """Return the call by which a block of a lock joins the block of this lease."""
    return entry_new(lease, lock, at_exit)


# --- extending ------------------------------------------------------------------------


@cython.final
cdef class ExtendCall(Call):
    cdef LeaseFields lease
    cdef object ttl
    cdef bint is_by_hand         # a kept lease is not extended so
    cdef object extension        # stands for it, which ends where nobody has it...
    cdef object under_way        # ...among the extensions of its lease
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
        self.value = self.lease._end_extend(self.round)
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
    # Forget it however the call ends: left behind, it would bound all later ones.
    if under_way is not None:
        (<set?>under_way).discard(extension)


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
    for under_way in self.each.under_way:
        extension_forget(under_way, self.each)


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


# --- blocks ---------------------------------------------------------------------------
# Which lease is given back when a block is left.
#
# Theory of operation. One lock object is entered as often as its users like, by many
# threads, greenlets and tasks, and each entry has a lease of its own, or the one of the
# block that it joins. A with statement looks up `__exit__` before it calls `__enter__`,
# and calls what it has found: so each look-up makes an object (BlockExit), which the
# entry behind it gives its lease. So a statement leaves what it has entered, whoever
# runs it then: a generator may be ended on another thread of a pool, or in another
# task, than it was begun. Dropped without a call, it releases its lease (CPython 3.14).
#
# An ExitStack looks both up in the class, and hands no object on. It leaves the last
# lease of this lock that its caller is in; else the one that is outstanding, if it is
# the only one. Else there is an error, and no lease of another is released.
#
# All of it is C: no signal comes between the end of a body and the release of its
# lease.


@cython.final
cdef class WithExit(BlockExit):
    def __call__(self, error_type, error, traceback):
        lease, self.lease = self.lease, None
        if isinstance(self.of, LeaseFields):
            return exit_by(self.of, error)
        return lock_exit(self.of, lock_last(self.of) if lease is None else lease, error)

    def __del__(self):
        lease = self.lease
        if EXIT_MAY_BE_DROPPED and lease is not None and self.of._driver.blocks:
            is_last = (
                lock_forget(self.of, lease, self) if isinstance(self.of, LockFields)
                else block_leave(lease)
            )
            if is_last:
                exit_unbegun(lease)


@cython.final
cdef class Exits:
    """The `__exit__` of locks or leases: each with statement gets one of its own."""

    cdef object function         # of the class

    def __init__(self, function):
        self.function = function

    def __get__(self, of, owner):
        global exit_looked_up
        cdef BlockExit found
        if of is None:
            return self.function
        found = WithExit.__new__(WithExit)
        found.of = of
        exit_looked_up = <PyObject *>found
        return found


lease_exit = Exits(exit_lease)


def lock_enter(LockFields self not None):
    """Enter a block of a lock; return its lease. Its `__enter__`."""
    cdef BlockExit at_exit = block_exit(self)
    cdef Call call = None
    try:
        joined = self._joined()
        if joined is None:
            call = self._acquire(at_exit)
        else:
            lease, ttl = joined
            if ttl is not None:
                lease._prolong(ttl)
            call = entry_new(lease, self, at_exit)
        lease = call_run(call)
        if lease is None:
            raise self._refused(call)
        return lease
    except BaseException:
        if call is not None:
            call.take_back()
        raise


def lock_enter_awaited(LockFields self not None):
    """Return what to await to enter a block of a lock: its `__aenter__`."""
    return self._enter(block_exit(self))


def lock_leave(LockFields self not None, error_type, error, traceback):
    """Leave the last block of the caller; return what to await for that.

    The lock's `__exit__`, or its `__aexit__`, if no with statement calls it.
    """
    return lock_exit(self, lock_last(self), error)


lock_exits = Exits(lock_leave)


cdef object lock_exit(LockFields self, LeaseFields lease, object error):
    if lease is not None:
        self._entries.remove(lease)
        return exit_by(lease, error)
    if error is None:
        raise self._not_entered()
    return None if self._driver.blocks else nothing()


cdef LeaseFields lock_last(LockFields self):
    # Return the lease that the caller leaves without an object of its own, or None.
    cdef list entries = self._entries
    if len(entries) > 0 and entries.count(entries[0]) == len(entries):
        return entries[0]
    for lease in self._driver.entered_here():
        if lease in entries:
            return lease
    return None
