# Types for the compiled simulator, see compiled.py.

cimport cython

from .network cimport Connection
from .process cimport Process
from .worker cimport Worker


cdef class Driver:
    cdef Process _process
    cdef object _engine
    cdef Worker _leader
    cdef list _followers, _waiting

    @cython.locals(connection=Connection)
    cpdef _flush(self)
    cpdef _add_follower(self, kind, round)
    cpdef _leave(self)

    @cython.locals(worker=Worker)
    cpdef _elect(self)
    cpdef _serve(self)

    @cython.locals(worker=Worker, is_closed=cython.bint)
    cpdef _wake_answered(self)
