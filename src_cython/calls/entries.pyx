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
