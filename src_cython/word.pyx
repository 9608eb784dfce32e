# How threads hear that their rounds are finished: one after the other.
#
# Only one thread can have the GIL. Woken all at once they would sleep once more, for
# that: so two at a time are woken (one alone leaves a core idle while it wakes up), and
# each passes the word on as soon as it is awake, before anything else. While the word
# is out, those who had it leave their next requests, and nobody is woken for these: the
# last one sees to that, or the one who fills a send. (64 threads, pairs/s: 18,000 woken
# all at once, 21,000 one by one, 28,000 so.)

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    AT_ONCE = 2
    STUCK_NS = 2_000_000     # who does not come (a signal handler) is passed over


@cython.final
@cython.internal
cdef class Word:
    """Who is told that his request is done, and when."""

    cdef list told                      # done, their threads not yet woken
    cdef int on_the_way                 # woken, not yet there
    cdef int64_t woken_at_ns            # the last of these

    def __cinit__(self):
        self.told = []


cdef bint word_is_out(Word self) noexcept:
    return self.on_the_way > 0 and clock_ns() - self.woken_at_ns < STUCK_NS


cdef int word_tell(Word self, Request request) except -1:
    with cython.critical_section(self):
        request.is_done = True
        if not request.is_gone:
            self.told.append(request)
    return word_pass(self)


cdef int word_pass(Word self) except -1:
    cdef Request request
    with cython.critical_section(self):
        if not word_is_out(self):
            self.on_the_way = 0
        while self.told and self.on_the_way < AT_ONCE:
            request = <Request>self.told.pop(0)
            request.is_woken = True
            self.on_the_way += 1
            self.woken_at_ns = clock_ns()
            request_wake(request)
    return 0


cdef bint word_come(Word self, Request request) except -1:
    # A thread is awake, maybe because it was told. Returns whether it was the last.
    with cython.critical_section(self):
        if not request.is_woken:
            return False
        request.is_woken = False
        self.on_the_way = max(0, self.on_the_way - 1)
    word_pass(self)
    return not word_is_out(self)


cdef int word_forget(Word self, Request request) except -1:
    # Its thread does not wait any more.
    with cython.critical_section(self):
        request.is_gone = True
        return forget_request(self.told, request)
