# Types for the compiled simulator, see compiled.py.

cimport cython

from .process cimport Process
from .world cimport World


cdef class Worker:
    cdef public Process process
    cdef public World world
    cdef public object habits, round, tried, lease, _steps
    cdef public long long until_ns, waits_from_ns, waits_until_ns, round_timeout_ns
    cdef public bytes waits_for
    cdef public tuple waits_for_all
    cdef public int waits_permits
    cdef public str awaits
    cdef public bint is_done, is_shielded
    cdef long long _turn, _deadline_ns, _timer_ns, _cancel_in
    cdef object _shown_ns

    cpdef bint is_answered(self)
    cpdef wake_soon(self)
    cpdef _wake_at(self, long long when_ns)

    @cython.locals(process=Process, world=World)
    cpdef _resume(self, long long turn)
    cpdef bint _is_held_up(self)
    cpdef _set_timer(self, shown_ns)
    cpdef _on_timer(self, long long when_ns)
