# Types for the compiled simulator, see compiled.py.

cimport cython

from .network cimport Connection, Path
from .worker cimport Worker
from .world cimport Clock, World


cdef class Process:
    cdef public World world
    cdef public int index
    cdef public Clock clock
    cdef public list lists, servers, paths, workers, connections, begun, shook_ns
    cdef public object judge
    cdef public bint is_sharing, is_crashed, is_gone, is_leaving, is_cut_at_close
    cdef public long long closed_ns, exited_ns, gone_ns, paused_until_ns, polled_at_ns
    cdef public set well_at_close
    cdef public bytes waiter
    cdef public Worker running
    cdef public object settings, engine, keeper, locks, watcher
    cdef public unsigned long long readable
    cdef public long long losses, connects, tokens
    cdef object _driver

    cpdef long long now_ns(self)

    @cython.locals(now_ns=cython.longlong)
    cpdef take_events(self)

    @cython.locals(connection=Connection, readable=cython.ulonglong, is_new=cython.bint)
    cpdef tuple _take_arrivals(self)
    cpdef open_due(self)
    cpdef on_readable(self, Connection connection)

    @cython.locals(worker=Worker)
    cpdef wake(self, str kind)

    @cython.locals(connection=Connection)
    cpdef long long is_well_with(self, int index)

    @cython.locals(path=Path)
    cpdef long long is_calm_with(self, int index)
