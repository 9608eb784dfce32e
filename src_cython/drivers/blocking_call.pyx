# The calls of the blocking FastRedlock that run one round, made in C: the first try of
# an acquire (first_try), a release, the end of a with block.
#
# As Python functions they cost 20,000 of a pair's 53,000 instructions. A driver that
# moves the bytes itself (masters in memory, the simulator) gets the same calls.

cdef int blocking_call_run(DriverFields driver, Round round) except -1:
    # As Driver.run.
    cdef Py_ssize_t warnings
    if not driver.runs_in_core:
        driver.run(round)
        return 0
    try:
        warnings = blocking_run_work(driver.engine, round)
    except (ClosedError, StateError) as error:
        driver.refuse(error)
    else:
        if warnings > driver.warned:
            driver.log_warnings()
    return 0


def run_first_try(AcquisitionFields self not None, ttl, timeout):
    """Make the first try of a blocking acquire, and go on where it has not won.

    `round` is that of the last try: what raises here, or in the caller on return, a
    signal's handler, is undone by it.
    """
    cdef DriverFields driver = <DriverFields?>self._driver
    key = first_try_key(self._resource)
    if key is None:
        key = self.encode(self._resource)
    self.round = first_try_round(driver, key, ttl, timeout, self.began_ns)
    if self.round is not None:
        blocking_call_run(driver, self.round)
    if self.round is None or self.round.verdict_code != VERDICT_WON:
        try:
            self.go_on(ttl, timeout)
        except Exception as error:
            if driver.observer is not None:
                driver.observer.on_failed(error)
            raise
    if self.round is None:
        return None
    lease = None
    if self.round.verdict_code == VERDICT_WON:
        lease = fields_lease(self.new_lease, driver, self._resource, self.round)
    if driver.observer is not None:
        observer_on_acquired(driver.observer, self._resource, self.round)
    return lease


cdef object blocking_call_release(
    LeaseFields lease, DriverFields driver, int64_t left_ns
):
    cdef Round round = fields_begin_release(lease, driver.engine, lease._unknown)
    if round is None:
        return lease._gone
    blocking_call_run(driver, round)
    if round.verdict_code == VERDICT_WON:
        lease._status = lease._released
    else:
        lease._end_release(round)
    if driver.observer is not None:
        fields_on_released(lease, driver, left_ns)
    return lease._status


def release_in_c(method):
    """Return a blocking lease's `release`, which is a function of C; `method` says what
    it does.

    Where an exception leaves it and no quorum has confirmed, the release is sent.
    """
    def guarded(LeaseFields self not None):
        cdef DriverFields driver
        try:
            driver = <DriverFields?>self._driver
            return blocking_call_release(
                self, driver, fields_left_if_observed(self, driver)
            )
        except BaseException:
            lease_give_up(self)
            raise

    return dressed(guarded, method)


def exit_lease(LeaseFields self not None, kind, error, traceback):
    """Leave a with block by a blocking lease: its `__exit__`."""
    cdef DriverFields driver = <DriverFields?>self._driver
    cdef int64_t left_ns
    try:
        if self._status is not None:      # the body released it
            return None
        left_ns = fields_left_ns(self, driver)
        try:
            status = blocking_call_release(self, driver, left_ns)
        except Exception:
            if error is None:
                raise
            lease_give_up(self)
            return None      # the body's error stands
        if error is None and (left_ns <= 0 or status is self._gone):
            self._check_exit(left_ns > 0, status)
    except BaseException:
        lease_give_up(self)
        raise
