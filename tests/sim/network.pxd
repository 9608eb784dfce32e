# Types for the compiled simulator, see compiled.py.

cimport cython

from .process cimport Process
from .world cimport World


cdef class Path:
    cdef public World world
    cdef public long long calm_from_ns, delay_ns, hole_until_ns, usual_ns
    cdef public bint is_slicing

    cpdef long long arrival_ns(self)


cdef class Pipe:
    cdef public World world
    cdef public Path path
    cdef public long long hole_until_ns, last_ns
    cdef public object may_deliver

    cpdef send(self, bytes data, arrive)

    @cython.locals(
        path=Path, world=World, leaves_ns=cython.longlong, low_ns=cython.longlong,
        arrival_ns=cython.longlong, draw=cython.double,
    )
    cpdef long long next_ns(self)
    cpdef bytes arriving(self, bytes data)


cdef class Connection:
    cdef public World world
    cdef public Path path
    cdef public Pipe up, down
    cdef public Process process
    cdef public object server
    cdef public object reader
    cdef public int index
    cdef public bint is_open, is_told, is_given_up, is_cut
    cdef public list inbox, replies
    cdef public str error
    cdef public long long ready_ns, answered, taken

    cpdef send(self, bytes data)

    @cython.locals(inbox=list, replies=list, heard=list, first=tuple)
    cpdef tuple receive(self)
    cpdef _on_up(self, bytes data)
    cpdef answer(self, question, bytes reply)
    cpdef _on_down(self, bytes data)
