# The fields of drivers, leases and acquisitions, where C makes and reads them. All else
# of these classes is Python (fastredlock/_locking).

from libc.stdint cimport int64_t


cdef class DriverFields:
    """The fields of a driver: what the calls of one FastRedlock share."""

    cdef public object settings
    cdef public Engine engine
    cdef public object keeper            # of the leases that are kept, or None
    cdef public object observer          # Observing: who is told; or None
    cdef public object current           # AsyncioDriver of its loop; None: it blocks
    cdef public Py_ssize_t warned        # of the engine's warnings, so many are logged
    cdef public bint runs_in_core        # False: bytes and clock are its own
    cdef Terms default_terms             # of the settings, which do not change
    cdef TokenSource token_source        # likewise; None: the caller's function

    def __init__(self, settings, Engine engine not None):
        self.settings = settings
        self.engine = engine
        self.default_terms = settings.default_terms
        self.token_source = settings.token_source
        self.runs_in_core = True


cdef class LocksFields:
    """The field of a FastRedlock."""

    cdef DriverFields driver
    cdef object __weakref__

    @property
    def _driver(self):
        """The driver; AttributeError before `__init__`."""
        return fields_driver(self)

    @_driver.setter
    def _driver(self, DriverFields driver not None):
        self.driver = driver


cdef class LeaseFields:
    """The fields of a lease."""

    cdef public object resource
    cdef public object _driver      # which its release needs; nothing else keeps it
    cdef public Round _round        # that took it
    cdef public object _status      # None until a release was begun
    cdef object __weakref__

    def __init__(self, driver, resource, Round round not None):
        self._driver = driver
        self.resource = resource
        self._round = round


cdef class AcquisitionFields:
    """The fields of one acquire under way."""

    cdef public object _driver
    cdef public object _resource
    cdef public Round round         # the last one, so that it can be undone; or None
    cdef public int64_t began_ns

    def __init__(self, driver, resource):
        self._driver = driver
        self._resource = driver.settings.resource if resource is None else resource
        self.began_ns = fields_now_ns(<DriverFields?>driver)


cdef AcquisitionFields fields_acquisition(
    type kind, DriverFields driver, object resource, Round first, int64_t began_ns
):
    # Of an acquire whose first try was made, or could have been.
    cdef AcquisitionFields acquisition = <AcquisitionFields?>kind.__new__(kind)
    acquisition._driver = driver
    acquisition._resource = resource
    acquisition.round = first
    acquisition.began_ns = began_ns
    return acquisition


cdef inline DriverFields fields_driver(LocksFields locks):
    if locks.driver is None:
        raise AttributeError("its __init__() was not called")
    return locks.driver


cdef inline int64_t fields_now_ns(DriverFields driver) except -1:
    return clock_ns() if driver.runs_in_core else driver.now_ns()


cdef bint fields_is_valid(LeaseFields lease, DriverFields driver) except -1:
    # As is_valid, of one that was not released.
    cdef Round taken = lease._round
    if taken.lease_state is not None:      # extended or kept
        return lease.is_valid
    return (
        taken.generation == current_generation and taken.is_opened
        and round_valid_until_ns(taken) > fields_now_ns(driver)
    )


cdef inline bytes fields_token(DriverFields driver):
    if driver.token_source is None:
        return driver.settings.new_token()
    return tokens_draw(driver.token_source)


def new_acquisition(LocksFields locks not None, type kind not None, resource):
    """Make an Acquisition, without a call of its class."""
    cdef DriverFields driver = fields_driver(locks)
    if resource is None:
        resource = driver.settings.resource
    return fields_acquisition(kind, driver, resource, None, fields_now_ns(driver))


cdef object fields_lease(type kind, object driver, object resource, Round round):
    # A lease, made without a call of its class.
    cdef LeaseFields lease = <LeaseFields?>kind.__new__(kind)
    lease._driver = driver
    lease.resource = resource
    lease._round = round
    return lease


def new_leases(
    type kind not None, driver, list resources not None, list rounds not None
):
    """Make a lease of each round, None of None."""
    cdef Py_ssize_t i
    cdef list leases = []
    for i in range(len(rounds)):
        round = rounds[i]
        leases.append(
            None if round is None
            else fields_lease(kind, driver, resources[i], <Round?>round)
        )
    return leases


def begin_releases(Engine engine not None, list leases not None, unknown):
    """Count each lease as released; list the rounds to run, None where none is."""
    cdef list rounds = []
    for lease in leases:
        rounds.append(
            None if lease is None
            else fields_begin_release(<LeaseFields?>lease, engine, unknown)
        )
    return rounds


cdef Round fields_begin_release(LeaseFields lease, Engine engine, object unknown):
    # `unknown`: its status from now on, until a quorum has confirmed the release.
    cdef Round release, taken = lease._round
    if lease._status is not None or taken.lease_state is not None or (
        taken.generation != current_generation
    ):
        return lease._begin_release()
    release = engine_new_release(engine, taken, taken.terms)
    lease._status = unknown
    return release
