# The calls of the awaitable FastRedlock that run one round: coroutines made in C.
#
# Theory of operation. An acquire whose first try wins, and a release, are one round:
# begun, awaited, and read. As coroutines of Python, with a generator for the attempts,
# they cost 28,000 instructions a pair, half of all. A call here is the same as an
# object with the methods of a coroutine, which asyncio and `await` take for one:
#
#   NEW      not awaited yet; where it never is, a RuntimeWarning says so
#   RUNNING  inside one of its steps
#   ROUND    its task waits for `future`, the end of its round
#   REST     its task waits for something in `rest`, a coroutine of Python that does all
#            but the common case: an acquire that has to try again, or to wait
#   OVER     it has returned or raised
#
# Whatever leaves it by exception or close(), and an end without either (its task was
# collected), undoes the round: `give_up`.

from cpython.exc cimport PyErr_WarnEx
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

cdef enum:
    CALL_OVER = 0
    CALL_NEW = 1
    CALL_RUNNING = 2
    CALL_ROUND = 3
    CALL_REST = 4


cdef class AwaitedCall(Awaited):
    """The base of a call that runs one round: a coroutine, for asyncio and `await`."""

    cdef DriverFields driver     # the LoopDriver
    cdef object here             # AsyncioDriver, or what moves the bytes by hand
    cdef AsyncioFuture future    # that its task waits for; in `rest`, of our own alone
    cdef object rest
    cdef uint8_t stage

    def __await__(self):
        if self.stage == CALL_ROUND or self.stage == CALL_REST:
            raise RuntimeError("coroutine is being awaited already")
        return self

    cdef int begin(self) except -1:
        # Set `future`, or `rest`, or neither where nothing is to be done.
        raise NotImplementedError

    cdef object end(self):
        # The round is over: return the value, or set `rest`.
        raise NotImplementedError

    cdef int give_up(self) except -1:
        # Undo what was begun; the caller has left.
        raise NotImplementedError

    cdef bint swallows(self, object error):
        # Whether it returns None instead of raising this.
        return False

    cdef str name(self):
        raise NotImplementedError

    cdef PySendResult step(self, PyObject **given) except -1:
        cdef uint8_t stage = self.stage
        cdef PySendResult status
        awaited_check(self)
        if self.future is not None and future_is_awaited(self.future):
            raise RuntimeError("coroutine is being awaited already")
        self.stage = CALL_RUNNING
        try:
            if stage == CALL_NEW:
                self.begin()
            status = awaited_step(self, given)
        except BaseException as error:
            self.stage = CALL_OVER
            if self.rest is None:      # which undoes its rounds itself
                self.give_up()
                if self.swallows(error):
                    awaiting_give(given, None)
                    return PYGEN_RETURN
            raise
        if status == PYGEN_RETURN:
            self.stage = CALL_OVER
        elif self.rest is None:
            self.stage = CALL_ROUND
        else:
            self.stage = CALL_REST
            awaited_note(self, <object>given[0])
        return status

    def send(self, value):
        """Go on."""
        return self.__next__()

    def throw(self, kind, value=None, traceback=None):
        """Raise this exception where it waits."""
        cdef uint8_t stage = self.stage
        awaited_check(self)
        self.stage = CALL_OVER
        if stage == CALL_REST:
            self.stage = CALL_RUNNING
            try:
                if value is None and traceback is None:
                    given = self.rest.throw(kind)
                else:
                    given = self.rest.throw(kind, value, traceback)
            except BaseException:      # of StopIteration, too: the value
                self.stage = CALL_OVER
                raise
            self.stage = CALL_REST
            awaited_note(self, given)
            return given
        try:
            raise awaited_error(kind, value, traceback)
        except BaseException as error:
            if stage == CALL_ROUND:
                self.give_up()
                if self.swallows(error):
                    raise StopIteration from None
            raise

    def close(self):
        """End it where it waits."""
        cdef uint8_t stage = self.stage
        if stage == CALL_OVER:
            return
        awaited_check(self)
        self.stage = CALL_OVER
        if stage == CALL_REST:
            self.rest.close()
        elif stage == CALL_ROUND:
            self.give_up()

    def __del__(self):
        cdef uint8_t stage = self.stage
        self.stage = CALL_OVER
        if stage == CALL_ROUND:
            self.give_up()
        elif stage == CALL_NEW:
            text = f"coroutine '{self.name()}' was never awaited".encode()
            PyErr_WarnEx(RuntimeWarning, text, 1)

    @property
    def __name__(self):
        """For the repr of its task."""
        return self.name().rpartition(".")[2]

    @property
    def __qualname__(self):
        """Likewise."""
        return self.name()

    @property
    def cr_running(self):
        """Whether it is inside one of its steps."""
        return self.stage == CALL_RUNNING


cdef void awaited_note(AwaitedCall self, object given) noexcept:
    self.future = <AsyncioFuture>given if isinstance(given, AsyncioFuture) else None


cdef int awaited_check(AwaitedCall self) except -1:
    if self.stage == CALL_RUNNING:
        raise ValueError("coroutine already executing")
    if self.stage == CALL_OVER:
        raise RuntimeError("cannot reuse already awaited coroutine")
    return 0


cdef PySendResult awaited_step(AwaitedCall self, PyObject **given) except -1:
    cdef PyObject *told = NULL
    if self.rest is None:
        if self.future is not None:
            if self.future.step(&told) == PYGEN_NEXT:
                given[0] = told
                return PYGEN_NEXT
            Py_XDECREF(told)
            self.future = None
            if self.driver.engine.warnings:
                awaited_log(self)
        value = self.end()
        if self.rest is None:
            awaiting_give(given, value)
            return PYGEN_RETURN
    return PyIter_Send(self.rest, None, given)


cdef int awaited_log(AwaitedCall self) except -1:
    if len(self.driver.engine.warnings) > self.driver.warned:
        self.driver.log_warnings()
    return 0


cdef int awaited_submit(AwaitedCall self, Round round) except -1:
    if not self.driver.runs_in_core:
        self.future = future_by_hand(self.driver.submit(self.here, round))
        return 0
    try:
        self.future = asyncio_submit(<AsyncioDriver>self.here, round)
    except (ClosedError, StateError) as error:
        self.driver.refuse(self.here, round, error)
    return 0


cdef object awaited_here(DriverFields driver):
    # As LoopDriver.here.
    if not driver.runs_in_core:
        return driver.here()
    current = driver.current
    try:
        if current is not None and asyncio_is_here(<AsyncioDriver?>current):
            return <AsyncioDriver>current
    except RuntimeError:      # no loop runs
        pass
    return driver.here()


cdef object awaited_error(object kind, object value, object traceback):
    # The exception that these three arguments of throw() mean.
    if isinstance(kind, BaseException):
        error = kind
    elif isinstance(value, BaseException):
        error = value
    else:
        error = kind() if value is None else kind(value)
    return error if traceback is None else error.with_traceback(traceback)
