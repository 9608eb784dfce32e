# The fields of leases and acquisitions, where C makes and reads them. All else of these
# classes is Python (fastredlock/_locking).

from libc.stdint cimport int64_t


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
        self.began_ns = clock_ns()


cdef object fields_lease(type kind, object driver, object resource, Round round):
    # A lease, made without a call of its class.
    cdef LeaseFields lease = kind.__new__(kind)
    lease._driver = driver
    lease.resource = resource
    lease._round = round
    return lease
