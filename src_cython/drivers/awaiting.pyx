# What a task of an event loop awaits: an object with one method that returns how it
# goes on, and the future of a round, or of a delay.
#
# `await` asks an object of another type than Python's own coroutines by `__next__`, and
# learns its value from a StopIteration. Raised in Cython this makes an exception, a
# traceback and a frame for it, some 2,500 instructions. The slot am_send returns the
# value itself (CPython 3.10, 3.11); later versions ask by tp_iternext where None is
# sent, and a StopIteration without a traceback is enough.

cdef extern from "Python.h":
    ctypedef int PySendResult      # an enum
    PySendResult PYGEN_RETURN
    PySendResult PYGEN_NEXT
    PySendResult PyIter_Send(object rest, object value, PyObject **given) except -1
    ctypedef struct PyAsyncMethods:
        void *am_send
    ctypedef struct AwaitingType "PyTypeObject":
        PyAsyncMethods *tp_as_async
        void *tp_iternext
    void PyErr_SetObject(object error_type, object value)
    void PyType_Modified(AwaitingType *changed)


cdef class Awaited:
    """The base of what a task awaits."""

    cdef PySendResult step(self, PyObject **given) except -1:
        # Go on; give PYGEN_NEXT with the future to wait for, or PYGEN_RETURN with the
        # value.
        raise NotImplementedError

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        cdef PyObject *given = NULL
        cdef PySendResult status = self.step(&given)
        value = <object>given
        Py_XDECREF(given)
        if status == PYGEN_RETURN:
            raise StopIteration(value)
        return value


cdef inline void awaiting_give(PyObject **given, object value) noexcept:
    Py_INCREF(value)
    given[0] = <PyObject *>value


cdef PySendResult awaiting_send(
    PyObject *self, PyObject *_value, PyObject **given
) except -1:
    given[0] = NULL
    return (<Awaited>self).step(given)


cdef PyObject *awaiting_next(PyObject *self) except? NULL:
    cdef PyObject *given = NULL
    if (<Awaited>self).step(&given) == PYGEN_NEXT:
        return given
    if given != <PyObject *>None:      # nothing raised: None
        PyErr_SetObject(StopIteration, StopIteration(<object>given))
    Py_XDECREF(given)
    return NULL


cdef void awaiting_set_slots(type awaited) noexcept:
    # Set the slots of a type of this module, before it is used. Each has an
    # `__await__`, so there is a tp_as_async.
    cdef AwaitingType *slots = <AwaitingType *><PyObject *>awaited
    slots.tp_as_async.am_send = <void *>awaiting_send
    slots.tp_iternext = <void *>awaiting_next
    PyType_Modified(slots)


from contextvars import copy_context

cdef class AsyncioDriver      # drivers/asyncio


cdef class AsyncioFuture(Awaited):
    """What one task awaits, once. Future-like as `asyncio.isfuture` means it.

    Beside asyncio's own it saves a handle and an iteration of the loop: the driver,
    which is called by the loop, lets the task go on there and then.
    """

    cdef public object _asyncio_future_blocking
    cdef AsyncioDriver driver
    cdef object callback, context    # of the task that waits
    cdef object cancelled_by         # a CancelledError, or None
    cdef bint is_done

    def get_loop(self):
        return self.driver.loop

    def done(self):
        return self.is_done

    def result(self):
        if self.cancelled_by is not None:
            raise self.cancelled_by
        return None

    def add_done_callback(self, callback, *, context=None):
        if self.callback is not None or self.is_done:
            raise RuntimeError("awaited twice")
        self.callback = callback
        self.context = copy_context() if context is None else context

    def remove_done_callback(self, callback):
        if self.callback is None or self.callback != callback:
            return 0
        self.callback = None
        return 1

    def cancel(self, msg=None):
        """Cancel it; the driver wakes its task in the loop's next iteration."""
        from asyncio import CancelledError      # by now it has long been imported

        if self.is_done:
            return False
        self.cancelled_by = CancelledError() if msg is None else CancelledError(msg)
        future_set_done(self)
        if len(self.driver.done) == self.driver.woken + 1:
            asyncio_call_soon(self.driver, self.driver.wake)
        return True

    cdef PySendResult step(self, PyObject **given) except -1:
        if not self.is_done:
            self._asyncio_future_blocking = True
            awaiting_give(given, self)
            return PYGEN_NEXT
        if self.cancelled_by is not None:
            raise self.cancelled_by
        awaiting_give(given, self.outcome())
        return PYGEN_RETURN

    cdef object outcome(self):
        return None


@cython.final
cdef class RoundFuture(AsyncioFuture):
    """The end of a round or batch.

    Its result is how many lines the engine has for the log; locks that were won have
    been withdrawn where their validity is over when the task goes on.
    """

    cdef object work                 # a Round or a Batch

    cdef object outcome(self):
        if work_expired_before_return(self.work, clock_ns()):
            self.driver.abandon(self.work)
        return len(self.driver.engine.unlogged)


@cython.final
cdef class DelayFuture(AsyncioFuture):
    """The end of a delay, and never before it.

    uvloop rounds to whole milliseconds, so its timers may go off half of one early: an
    acquire would try again and again just before the end of its timeout. Beside
    asyncio.sleep it saves a coroutine, which counts where thousands wait.
    """

    cdef int64_t due_ns
    cdef object timer

    def __call__(self):
        """Its timer went off."""
        cdef int64_t left_ns = self.due_ns - clock_ns()
        self.timer = None
        if self.is_done:
            return
        if left_ns > 0:
            delay_arm(self, max(left_ns, <int64_t>NS_PER_MS))
            return
        future_set_done(self)
        self.driver.wake()

    def cancel(self, msg=None):
        """Cancel it; the driver wakes its task in the loop's next iteration."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()
        return AsyncioFuture.cancel(self, msg)


@cython.final
cdef class ByHandFuture(AsyncioFuture):
    """The end of a round whose bytes are moved by hand: whatever is awaited there."""

    cdef object waiting      # an iterator

    def __init__(self, awaited):
        self.waiting = awaited.__await__()

    cdef PySendResult step(self, PyObject **given) except -1:
        return PyIter_Send(self.waiting, None, given)


cdef int asyncio_call_soon(AsyncioDriver self, object callback) except -1:
    # A loop is Python code, in which a signal handler may raise, before the callback is
    # queued or behind that: so it is queued again. Twice does no harm.
    try:
        self.loop.call_soon(callback)
    except BaseException:
        self.loop.call_soon(callback)
        raise


cdef int delay_arm(DelayFuture self, int64_t left_ns) except -1:
    # Arm it again if a signal handler raised in the loop's Python code. A timer may go
    # off twice; one that never goes off would be waited for.
    try:
        self.timer = self.driver.loop.call_later(left_ns / 1e9, self)
    except BaseException:
        self.timer = self.driver.loop.call_later(left_ns / 1e9, self)
        raise


cdef int future_set_done(AsyncioFuture self) except -1:
    # Nothing where it was cancelled, and its task not yet woken.
    if not self.is_done:
        self.is_done = True
        self.driver.done.append(self)


awaiting_set_slots(AsyncioFuture)
awaiting_set_slots(RoundFuture)
awaiting_set_slots(DelayFuture)
