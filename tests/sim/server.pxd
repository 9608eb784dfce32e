# Types for the compiled simulator, see compiled.py.

cimport cython

from .judge cimport Judge
from .network cimport Connection
from .queues cimport Queues
from .world cimport Clock, World


cdef class Server:
    cdef public World world
    cdef public Clock clock
    cdef public int index
    cdef public Judge judge
    cdef public dict keys, _commands
    cdef public bint is_old, is_without_queues, is_down, is_compare_broken
    cdef public bytes native
    cdef public bint is_native_forbidden
    cdef public bytes refuses
    cdef public long long paused_until_ns, calm_from_ns, age_s, started_s
    cdef public list connections, clients, _waiting
    cdef public int _starts
    cdef public str run_id
    cdef public Queues queues
    cdef public set loaded, killed

    cpdef long long wall_ms(self)

    @cython.locals(reply=bytes)
    cpdef on_bytes(self, Connection connection, bytes data)

    @cython.locals(push=bytes, pushes=list, is_behind=cython.bint)
    cpdef _answer(self, Connection connection, question, bytes reply)

    @cython.locals(entry=tuple)
    cpdef bytes token_at(self, key)
    cpdef bytes execute(self, list words)
