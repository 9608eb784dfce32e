# The calls of the blocking FastRedlock that run one round, made in C: the first try of
# an acquire (first_try), a release, the end of a with block.
#
# As Python functions they cost 20,000 of a pair's 53,000 instructions. All but the
# common case is left to Python, as is all of a driver that runs rounds by itself.

cdef int blocking_call_run(DriverFields driver, Round round) except -1:
    # As Driver.run.
    cdef Py_ssize_t warnings
    try:
        warnings = blocking_run_work(driver.engine, round)
    except (ClosedError, StateError) as error:
        driver.refuse(error)
    else:
        if warnings > driver.warned:
            driver.log_warnings()
    return 0


def acquire_in_c(type kind not None):
    """Return a decorator: `FastRedlock.acquire` as a function of C, beside the method.

    The method does all but what is plain. `kind`: the Acquisition of further tries.
    """
    def beside(method):
        return blocking_call_acquire(method, kind)

    return beside


cdef object blocking_call_acquire(object method, type kind):
    def guarded(
        LocksFields self not None, resource=None, *, ttl=None, timeout=None,
        keep_alive=False, on_lost=None,
    ):
        cdef DriverFields driver = fields_driver(self)
        cdef int64_t began_ns = clock_ns()
        cdef Round round = None
        cdef AcquisitionFields acquisition = None
        cdef bytes key
        if resource is None:
            resource = driver.settings.resource
        key = first_try_key(resource)
        if key is None or keep_alive is not False or on_lost is not None or (
            not driver.runs_in_core
        ):
            return method(
                self, resource, ttl=ttl, timeout=timeout, keep_alive=keep_alive,
                on_lost=on_lost,
            )
        try:
            round = first_try_round(driver, key, ttl, timeout, began_ns)
            if round is not None:
                blocking_call_run(driver, round)
                if round.verdict_code == VERDICT_WON:
                    return fields_lease(kind.new_lease, driver, resource, round)
            acquisition = fields_acquisition(kind, driver, resource, round, began_ns)
            return acquisition.go_on(ttl, timeout)
        except BaseException:
            if acquisition is not None:
                undo(acquisition)
            elif round is not None:
                body_abandon(driver, round)
            raise

    return dressed(guarded, method)


def try_first(AcquisitionFields self not None, ttl, timeout):
    """Make the first try of a blocking acquire; return its lease if it has won.

    None: `round` is that of the try, or None where no try was made here.
    """
    cdef DriverFields driver = <DriverFields?>self._driver
    if not driver.runs_in_core:
        return None
    key = first_try_key(self._resource)
    if key is None:
        key = self.encode(self._resource)
    self.round = first_try_round(driver, key, ttl, timeout, self.began_ns)
    if self.round is None:
        return None
    blocking_call_run(driver, self.round)
    if self.round.verdict_code != VERDICT_WON:
        return None
    return fields_lease(self.new_lease, driver, self._resource, self.round)


cdef object blocking_call_release(LeaseFields lease, DriverFields driver):
    cdef Round round = fields_begin_release(lease, driver.engine, lease._unknown)
    if round is None:
        return lease._gone
    blocking_call_run(driver, round)
    if round.verdict_code == VERDICT_WON:
        lease._status = lease._released
        return lease._status
    return lease._end_release(round)


def release_in_c(method):
    """Return a blocking lease's `release` as a function of C, beside `method`.

    Where an exception leaves it and no quorum has confirmed, the release is sent.
    """
    def guarded(LeaseFields self not None):
        cdef DriverFields driver = <DriverFields?>self._driver
        try:
            if driver.runs_in_core:
                return blocking_call_release(self, driver)
            return method(self)
        except BaseException:
            lease_give_up(self)
            raise

    return dressed(guarded, method)


def exit_in_c(method):
    """Return a blocking lease's `__exit__` likewise."""
    def guarded(LeaseFields self not None, kind, error, traceback):
        cdef Round taken = self._round
        cdef DriverFields driver = <DriverFields?>self._driver
        try:
            if taken.lease_state is not None or driver.observer is not None or (
                not driver.runs_in_core
            ):      # extended or kept; or its release tells an observer
                return method(self, kind, error, traceback)
            if self._status is not None:      # the body released it
                return None
            was_valid = (
                taken.generation == current_generation and taken.is_opened
                and round_valid_until_ns(taken) > clock_ns()
            )
            try:
                status = blocking_call_release(self, driver)
            except Exception:
                if error is None:
                    raise
                lease_give_up(self)
                return None      # the body's error stands
            if error is None and (not was_valid or status is self._gone):
                self._check_exit(was_valid, status)
        except BaseException:
            lease_give_up(self)
            raise

    return dressed(guarded, method)
