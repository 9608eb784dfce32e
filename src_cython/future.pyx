# What a task awaits: the end of its round, told by the driver of its loop.

cimport cython

from contextvars import copy_context


cdef class LoopDriver      # loop.pyx


@cython.final
cdef class RoundFuture:
    """The future of one round or batch: awaited once, by the task that began it.

    Tells how many warnings the engine has by then; what was won has been withdrawn
    where its validity is over by the time that the task is told. Beside asyncio's own
    it saves a handle and a turn of the loop: the driver, which is called by the loop,
    lets the task go on there and then. (Future-like as `asyncio.isfuture` means it.)
    """

    cdef public object _asyncio_future_blocking
    cdef LoopDriver driver
    cdef object work                 # a Round or a Batch
    cdef object callback, context    # of the task that waits
    cdef object cancelled_by         # a CancelledError, or None
    cdef bint is_done

    def get_loop(self):
        return self.driver.loop

    def done(self):
        return self.is_done

    def cancelled(self):
        return self.cancelled_by is not None

    def result(self):
        if self.cancelled_by is not None:
            raise self.cancelled_by
        return None

    def exception(self):
        return self.result()

    def add_done_callback(self, callback, *, context=None):
        if self.callback is not None or self.is_done:
            raise RuntimeError("awaited twice")
        self.callback = callback
        self.context = copy_context() if context is None else context

    def remove_done_callback(self, callback):
        cdef bint is_known = self.callback is not None and self.callback == callback
        if is_known:
            self.callback = None
        return <int>is_known

    def set_result(self, result):
        """The round is finished: the driver tells the task next."""
        self.is_done = True
        self.driver.done.append(self)

    def cancel(self, msg=None):
        """The task is being cancelled; its driver is told when the task comes by."""
        if self.is_done:
            return False
        self.is_done = True
        self.cancelled_by = cancelled_error(msg)
        loop_wake_soon(self.driver, self)
        return True

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if not self.is_done:
            self._asyncio_future_blocking = True
            return self
        self.result()
        if work_has_validity(self.work) and work_is_overtaken(self.work, clock_ns()):
            self.driver.abandon(self.work)
        raise StopIteration(len(self.driver.engine.warnings))


cdef object cancelled_error(object message):
    from asyncio import CancelledError      # by now it has long been imported

    return CancelledError() if message is None else CancelledError(message)
