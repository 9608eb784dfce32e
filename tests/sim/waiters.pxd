# Types for the compiled simulator, see compiled.py.

cimport cython

from .judge cimport Judge
from .process cimport Process
from .worker cimport Worker
from .world cimport World


cdef class Waiters:
    cdef World _world
    cdef Judge _judge
    cdef list _processes
    cdef dict _free_ns
    cdef set _counted

    cpdef look(self)

    @cython.locals(free_ns=list, now_ns=cython.longlong)
    cpdef _look_at(self, bytes key)

    @cython.locals(process=Process, now_ns=cython.longlong)
    cpdef _judge_waiter(self, Worker worker)

    @cython.locals(process=Process, index=cython.int)
    cpdef long long _undisturbed_from_ns(self)
