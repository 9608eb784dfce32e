# Types for the compiled simulator, see compiled.py.

cimport cython

from .network cimport Connection
from .process cimport Process
from .server cimport Server
from .world cimport World


cdef class Hold:
    cdef public object lease
    cdef public int owner
    cdef public long long until_ns


cdef class Judge:
    cdef public World world
    cdef public list servers, rounds
    cdef public set handed_on
    cdef public set unseen, set_behind, extended_late, refused, unknown_script
    cdef public bint is_naive
    cdef public long long leases
    cdef public object excuses
    cdef public dict resting
    cdef public dict ended, fences, set_late, granted_ns, _holds, _heard, _refused_ns, _sets
    cdef public set _unknown, _released
    cdef public dict permits, _begins

    @cython.locals(heard_here=list)
    cpdef on_heard(self, Process process, int index, list heard)

    @cython.locals(word=object)
    cpdef on_command(self, Connection connection, words)

    @cython.locals(first=Connection, is_set=cython.bint, operation=cython.int)
    cpdef on_executed(self, Connection connection, tuple question, bytes reply)
