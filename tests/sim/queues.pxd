# Types for the compiled simulator, see compiled.py.

from .network cimport Connection
from .server cimport Server


cdef class Queues:
    cdef public Connection speaker
    cdef Server _server
    cdef dict _tickets, _until_ms, _turns, _listeners, _scripts, _around
    cdef list _to_speaker
    cdef bint _has_written

    cpdef list pushes_to_speaker(self)
