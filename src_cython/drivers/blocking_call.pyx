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
        if self.round.verdict_code == VERDICT_WON:
            return fields_lease(self.new_lease, driver, self._resource, self.round)
    return self.go_on(ttl, timeout)


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
    """Return a blocking lease's `release`, which is a function of C; `method` says what
    it does.

    Where an exception leaves it and no quorum has confirmed, the release is sent.
    """
    def guarded(LeaseFields self not None):
        try:
            return blocking_call_release(self, <DriverFields?>self._driver)
        except BaseException:
            lease_give_up(self)
            raise

    return dressed(guarded, method)


def exit_lease(LeaseFields self not None, kind, error, traceback):
    """Leave a with block by a blocking lease: its `__exit__`."""
    cdef DriverFields driver = <DriverFields?>self._driver
    cdef bint was_valid
    try:
        if self._status is not None:      # the body released it
            return None
        was_valid = fields_is_valid(self, driver)
        try:
            if driver.observer is None:
                status = blocking_call_release(self, driver)
            else:
                status = self.release()      # which notifies it
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
