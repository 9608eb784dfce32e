# Types for the compiled simulator, see compiled.py.

cimport cython

from .judge cimport Judge
from .network cimport Connection
from .world cimport Clock, World


cdef class Server:
    cdef public World world
    cdef public Clock clock
    cdef public int index
    cdef public Judge judge
    cdef public object model
    cdef public bint is_old, is_without_queues, is_down, is_compare_broken
    cdef public bint is_native_forbidden
    cdef public long long paused_until_ns, calm_from_ns, age_s
    cdef public list connections, _waiting
    cdef public int _starts

    cpdef long long now_us(self)

    @cython.locals(reply=bytes)
    cpdef on_bytes(self, Connection connection, bytes data)

    @cython.locals(pushes=list, is_behind=cython.bint)
    cpdef _answer(self, Connection connection, question, bytes reply)
    cpdef bytes token_at(self, key)
