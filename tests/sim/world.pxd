# Types for the compiled simulator, see compiled.py. Nothing here changes a result.

cimport cython


cdef class World:
    cdef public object random, fraction
    cdef public list log
    cdef public long long now_ns
    cdef list _agenda
    cdef long long _made

    @cython.locals(
        agenda=list, entry=tuple, low=cython.Py_ssize_t, high=cython.Py_ssize_t,
        middle=cython.Py_ssize_t, other_ns=cython.longlong,
    )
    cpdef at(self, long long when_ns, action, argument=*)

    @cython.locals(agenda=list, entry=tuple, when_ns=cython.longlong)
    cpdef run(self, long long until_ns, long long until_made=*)
    cpdef tell(self, text)

    @cython.locals(draw=cython.double)
    cpdef long long between(self, long long low, long long high)

    @cython.locals(draw=cython.double)
    cpdef bint chance(self, double probability)


cdef class Clock:
    cdef public long long origin_ns, rate_ppm

    cpdef long long read(self, long long true_ns)
    cpdef true_at(self, shown_ns)
