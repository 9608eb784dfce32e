# Leaving a with body, and undoing an acquire: by functions that no signal can precede.
#
# CPython runs signal handlers at the first instruction of a Python function, at a jump
# back and after a call into C (ceval.c, CHECK_EVAL_BREAKER). An exception raised at
# the first one comes before any `try` of that function: between the body of a with
# block and the first line of its `__exit__` Ctrl-C left a key for its ttl. A function
# of C has no instructions, so no signal is looked at between the body's end and the
# `try` below, nor in the handling of an exception from it: attributes of slots are
# read, and the core is called. threading.Lock is left in the same way. (Which lease a
# lock's body gives back: lock_entries.)
#
# What a call has to take back in a `finally` is likewise one call into C.
#
# The way in needs less: a lock that `__enter__` has taken when an exception comes is
# undone by its own `except`, and CPython handles no signal from its return to the body.
#
# Only the fields of leases are known here: `_driver` (with `engine` and `current`),
# `_round`, and `_status`: None while nothing was sent, `_unknown` until it is settled.


def guard_async_exit(method):
    """Return as a function of C the `__aexit__` of a lease, where it is no call.

    Where an exception leaves it before the release was begun, the release is sent. One
    that is kept has a body of its own way to leave. (Of the others: awaited_release.)
    """
    async def guarded(self, kind, error, traceback):
        try:
            if (<Round?>self._round).lease_state is None:
                return await method(self, kind, error, traceback)
            return await self._leave_kept(method, kind, error, traceback)
        except BaseException:
            lease_give_up(self)
            raise

    return dressed(guarded, method)


def guard_close(method):
    """Return a client's `__exit__` likewise: interrupted, it closes all the same."""
    def guarded(self, kind, error, traceback):
        try:
            return method(self, kind, error, traceback)
        except BaseException:
            self.close()
            raise

    return dressed(guarded, method)


cdef object dressed(object guarded, object method):
    # For help() and inspect.
    guarded.__name__ = method.__name__
    guarded.__qualname__ = method.__qualname__
    guarded.__module__ = method.__module__
    guarded.__doc__ = method.__doc__
    guarded.__wrapped__ = method
    return guarded


def enter(self):
    """Return the lease itself: its `__enter__`."""
    return self


def undo(self):
    """Roll back what an acquire's last round may have taken; nothing twice."""
    if self.round is not None:
        body_abandon(self._driver, self.round)


def forget_extensions(list tables not None, list extensions not None):
    """Take each extension out of the table of its lease, if any: its call has ended."""
    cdef Py_ssize_t i
    for i in range(len(tables)):
        if tables[i] is not None:
            (<dict?>tables[i]).pop(extensions[i], None)


cdef int lease_note_entry(object lease) except -1:
    # Note which task runs the body of an awaitable lease.
    driver = lease._driver.current
    if driver is None or not body_driver_is_running(driver):
        driver = lease._driver.here()
    (<Round?>lease._round).entered_by = driver.caller()
    return 0


cdef int lease_give_up(object lease) except -1:
    # Send the release of a lease whose own was interrupted. Of an awaitable one only
    # where it had not begun: from then on its driver has the round. A forked child has
    # none of its parent's leases, and a loop's engine is left to the loop's thread.
    cdef Round taken = lease._round
    cdef Round release
    owner = lease._driver
    driver, status = owner.current, lease._status
    if taken.generation != current_generation or not (
        status is None or driver is None and status is lease._unknown
    ):
        return 0
    if driver is not None and not body_driver_is_running(driver):
        return 0
    lease_state = taken.lease_state
    extensions = None if lease_state is None else lease_state.extensions
    release = (<Engine?>owner.engine).new_release(
        taken, taken.terms if extensions is None else extensions.longest_terms
    )
    lease._status = lease._unknown
    if driver is None:
        body_abandon(owner, release)
    else:
        driver.abandon(release)
    return 0


cdef int body_abandon(object driver, work) except -1:
    # By the shell's driver, where it moves the bytes of a by_hand engine itself.
    cdef Engine engine = driver.engine
    if engine.by_hand is None:
        blocking_abandon(engine, work)
    else:
        driver.abandon(work)
    return 0


cdef bint body_driver_is_running(driver) except -1:
    # AsyncioDriver, or what stands in its place where an engine is driven by hand.
    try:
        return driver.is_here()
    except RuntimeError:      # no loop runs
        return False
