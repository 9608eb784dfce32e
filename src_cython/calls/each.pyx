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
