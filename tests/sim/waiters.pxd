# Types for the compiled simulator, see compiled.py.

from .judge cimport Judge
from .world cimport World


cdef class Waiters:
    cdef World _world
    cdef Judge _judge
    cdef list _processes
    cdef dict _free_ns
    cdef set _counted

    cpdef _look_at(self, bytes key)
