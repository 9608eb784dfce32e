# A call: to acquire, extend or release, and both ends of a body, of both clients.
#
# Theory of operation. There is one body of each call, `go_on`, which does no I/O: it
# returns the round to run next, or the time (s) to sleep, and None at the end, with
# `value` set. The machine waits for it in one of two ways. A blocking call runs to its
# end (call_run), in the thread that calls. An awaited one is an object with the methods
# of a coroutine, which asyncio and `await` take for one:
#
#   NEW      not begun; where it never is awaited, a RuntimeWarning
#   RUNNING  inside one of its steps
#   ROUND    its task waits for `future`, the end of its round
#   DELAY    ...or of the time between two attempts
#   OVER     it has returned or raised
#
# Whatever leaves a call by exception or close(), and an end without either (its task
# was collected), undoes it: `give_up`. As coroutines of Python, with a generator for
# the attempts, the two calls of a pair cost 28,000 instructions, half of all. A driver
# that moves the bytes itself (masters in memory, the simulator) gets the same calls.

cdef enum:
    CALL_NEW, CALL_RUNNING, CALL_ROUND, CALL_DELAY, CALL_OVER


cdef class Call(Awaited):
    """The base of a call: a machine that blocks, or is awaited as a coroutine."""

    cdef DriverFields driver
    cdef object here             # AsyncioDriver, or what moves the bytes by hand
    cdef AsyncioFuture future    # that its task waits for
    cdef object value            # to be returned
    cdef str called
    cdef uint8_t stage
    cdef bint blocks

    def __await__(self):
        if self.stage == CALL_ROUND or self.stage == CALL_DELAY:
            raise RuntimeError("coroutine is being awaited already")
        return self

    def run(self):
        """Make the call, and return its value; blocks."""
        return call_run(self)

    cdef object go_on(self):
        # Return the round to run, or the time to sleep; None: it is over.
        raise NotImplementedError

    cdef int give_up(self) except -1:
        # Undo what was begun; the caller has left.
        raise NotImplementedError

    cdef int take_back(self) except -1:
        # Undo a blocking call whose caller does that, where it catches what comes when
        # this has returned, too. Nothing twice.
        return 0

    cdef bint is_owed(self) noexcept:
        # Whether it is done though nobody awaits it.
        return False

    cdef bint is_sent_anyway(self) except -1:
        # Whether it is done though it was cancelled before its first step.
        return False

    cdef bint swallows(self, object error) except -1:
        # It was given up: whether it returns None instead of raising this.
        return False

    # --- awaited ----------------------------------------------------------------------

    cdef PySendResult step(self, PyObject **given) except -1:
        cdef uint8_t stage = self.stage
        cdef PySendResult status
        call_check(self)
        if self.future is not None and self.future.callback is not None and (
            not self.future.is_done
        ):      # another task waits for it, and this one would for ever
            raise RuntimeError("coroutine is being awaited already")
        self.stage = CALL_RUNNING
        try:
            if stage == CALL_NEW:
                self.here = call_here(self.driver)
            status = call_step(self, stage, given)
        except BaseException as error:
            self.stage = CALL_OVER
            self.give_up()
            if not self.swallows(error):
                raise
            awaiting_give(given, None)
            return PYGEN_RETURN
        return status

    def send(self, value):
        """Go on."""
        return self.__next__()

    def throw(self, error_type, value=None, traceback=None):
        """Raise this exception where it waits."""
        cdef uint8_t stage = self.stage
        call_check(self)
        self.stage = CALL_OVER
        try:
            raise error_type, value, traceback
        except BaseException as error:
            if stage == CALL_NEW and self.is_sent_anyway():
                try:
                    self.here = call_here(self.driver)
                except Exception:
                    pass      # it is no task of a loop that may use the engine
            if self.here is not None:
                self.give_up()
                if self.swallows(error):
                    raise StopIteration from None
            raise

    def close(self):
        """End it where it waits."""
        cdef uint8_t stage = self.stage
        if stage == CALL_OVER:
            return
        call_check(self)
        self.stage = CALL_OVER
        if stage != CALL_NEW:
            self.give_up()

    def __del__(self):
        cdef uint8_t stage = self.stage
        self.stage = CALL_OVER
        if self.driver is None:      # its __init__ has raised
            return
        if stage == CALL_ROUND or stage == CALL_DELAY or (
            stage == CALL_NEW and self.is_owed()
        ):
            self.give_up()
        elif stage == CALL_NEW and not self.driver.blocks:
            text = f"coroutine '{self.called}' was never awaited".encode()
            PyErr_WarnEx(RuntimeWarning, text, 1)

    @property
    def __name__(self):
        """For the repr of its task."""
        return self.called.rpartition(".")[2]

    @property
    def __qualname__(self):
        """Likewise."""
        return self.called

    @property
    def cr_running(self):
        """Whether it is inside one of its steps."""
        return self.stage == CALL_RUNNING


def undo(Call self not None):
    """Undo a blocking acquire, or a call for each of many, that its caller has left."""
    self.take_back()


cdef object call_begin(Call self):
    # Run it where its client blocks; else return what is awaited.
    return call_run(self) if self.driver.blocks else self


cdef object call_run(Call self):
    cdef object work
    if self.stage != CALL_NEW:
        call_check(self)
    self.blocks = True
    self.stage = CALL_RUNNING
    try:
        while (work := self.go_on()) is not None:
            if type(work) is float:
                self.driver.sleep(work)
            else:
                self.driver.run(work)
    except BaseException as error:
        self.stage = CALL_OVER
        self.give_up()
        if not self.swallows(error):
            raise
        return None
    self.stage = CALL_OVER
    return self.value


cdef int call_check(Call self) except -1:
    if self.stage == CALL_RUNNING:
        raise ValueError("coroutine already executing")
    if self.stage == CALL_OVER:
        raise RuntimeError("cannot reuse already awaited coroutine")
    return 0


cdef PySendResult call_step(Call self, uint8_t stage, PyObject **given) except -1:
    cdef object work
    cdef PyObject *result = NULL
    while True:
        if self.future is not None:
            if self.future.step(&result) == PYGEN_NEXT:
                given[0] = result
                self.stage = stage
                return PYGEN_NEXT
            Py_XDECREF(result)
            self.future = None
            if self.driver.engine.counters.unlogged:
                self.driver.log_warnings()
        work = self.go_on()
        if work is None:
            self.stage = CALL_OVER
            awaiting_give(given, self.value)
            return PYGEN_RETURN
        if self.driver.runs_in_core and asyncio_hand_on(self.here, work):
            continue
        stage = CALL_DELAY if type(work) is float else CALL_ROUND
        self.future = call_begin_to_wait(self, work)


cdef AsyncioFuture call_begin_to_wait(Call self, object work):
    cdef bint is_by_hand = not self.driver.runs_in_core
    if type(work) is float:
        if is_by_hand:
            return ByHandFuture(self.here.sleep(work))
        return (<AsyncioDriver>self.here).sleep(work)
    try:
        if is_by_hand:
            return ByHandFuture(self.here.submit(work))
        return asyncio_submit(<AsyncioDriver>self.here, work)
    except (ClosedError, StateError) as error:
        self.driver.refuse(self.here, work, error)


cdef object call_here(DriverFields driver):
    # As LoopDriver.here.
    current = driver.current if driver.runs_in_core else None
    try:
        if current is not None and asyncio_is_here(<AsyncioDriver?>current):
            return current
    except RuntimeError:      # no loop runs
        pass
    return driver.here()


cdef int call_abandon(Call self, object work) except -1:
    # Roll back what an awaited call has begun, or send its release all the same; of a
    # blocking one, by a function of C: no signal is looked at before its first line.
    if not self.blocks:
        self.driver.abandon(self.here, work)
    elif self.driver.runs_in_core:
        blocking_abandon(self.driver.engine, work)
    else:
        self.driver.abandon(work)
    return 0
