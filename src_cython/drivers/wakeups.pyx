# How threads hear that their rounds are finished: one after the other.
#
# Only one thread can have the GIL. Woken all at once they would sleep once more, for
# that: so two at a time are woken (one alone leaves a core idle while it wakes up), and
# each passes the word on as soon as it is awake, before anything else. While the word
# is out, those who had it leave their next requests, and nobody is woken for these: the
# last one sees to that, and every twelfth request. (64 threads, pairs/s: 18,000 woken
# all at once, 21,000 one by one, 28,000 so.)
#
# Only a thread that sleeps gets the word, so whoever has it comes: as soon as the
# scheduler and the GIL let it.

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    AT_ONCE = 2
    STUCK_NS = 5_000_000     # who has not come by then is not waited for


@cython.final
@cython.internal
cdef class Word:
    """Who is told that his request is done, and when."""

    cdef list told                      # done, their threads not yet woken
    cdef int on_the_way                 # woken, not yet there; less if one comes late
    cdef int64_t woken_at_ns            # the last of these

    def __cinit__(self):
        self.told = []


cdef bint word_is_out(Word self) noexcept:
    return self.on_the_way > 0 and clock_ns() - self.woken_at_ns < STUCK_NS


cdef int word_tell(Word self, Request request) except -1:
    with cython.critical_section(self):
        request.is_done = True
        if request.is_waiting:
            self.told.append(request)
    return word_pass(self)


cdef int word_pass(Word self) except -1:
    cdef Request request
    with cython.critical_section(self):
        if not word_is_out(self):
            self.on_the_way = 0
        while self.told and self.on_the_way < AT_ONCE:
            request = <Request>self.told.pop(0)
            request.has_word = True
            self.on_the_way += 1
            self.woken_at_ns = clock_ns()
            request_wake(request)
    return 0


cdef bint word_go(Word self, Request request) except -1:
    # A thread is about to sleep. Returns False where it is done already.
    with cython.critical_section(self):
        request.is_waiting = not request.is_done
    return request.is_waiting


cdef bint word_come(Word self, Request request) except -1:
    # A thread is awake, for whatever reason. Returns whether it was the last to have
    # the word.
    cdef bint had_word
    with cython.critical_section(self):
        had_word = request.has_word
        if had_word:
            self.on_the_way = max(0, self.on_the_way - 1)
        elif request.is_done and request.is_waiting:
            forget_request(self.told, request)
        request.has_word = request.is_waiting = False
    if had_word:
        word_pass(self)
    return had_word and not word_is_out(self)
