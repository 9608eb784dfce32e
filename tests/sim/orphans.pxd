# Types for the compiled simulator, see compiled.py.

cimport cython

from .judge cimport Judge
from .server cimport Server
from .world cimport World


cdef class Orphans:
    cdef World _world
    cdef Judge _judge
    cdef set _counted
    cdef public int looks

    @cython.locals(server=Server, judge=Judge, token=bytes)
    cpdef look(self)
