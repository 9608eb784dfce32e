# What a connection needs from the caller's side before it is opened: a login from his
# function, and TLS files read again. In a thread of its own, one per connection.
#
# The function may ask a store of secrets over the network, take seconds, raise, or call
# us back, and files may be on a disk that is slow. So neither runs inside a step: no
# round waits for them, and a lock that the function takes, of this engine too,
# is a call like any other thread's. The thread sets an event when it is done, and the
# connection polls a duplicate of its descriptor, as for a name (lookup).
#
# What it gives is used for one connection, so a password that was refused is asked for
# anew at the next. A connection that gives up leaves the thread running; the next one
# of this master waits for the same thread, or takes what it gave if that is still
# fresh: so no more than one runs for each master. A forked child has no such thread.
#
# The thread holds the function and this object alone, never the engine: it may outlive
# all else, and ends with the interpreter.

cdef int64_t PREPARED_FRESH_NS = 60_000_000_000      # a client that blocks may be idle


@cython.final
@cython.internal
cdef class Preparing:
    """One call of a master's function, under way or just done."""

    cdef Event done              # set from then on
    cdef bint is_open
    cdef int is_done             # written last by the thread
    cdef int64_t done_ns
    cdef uint32_t generation     # of the process that has the thread
    cdef object given            # (user, password, ssl.SSLContext), each may be None...
    cdef str failure             # ...or why there is none

    def __dealloc__(self):
        if self.is_open:
            event_close(&self.done)

    def run(self, prepare):
        """Call it, in this thread; an error is named by its type, for it may show a
        password."""
        try:
            given = prepare()
            if type(given) is str:
                self.failure = given
            else:
                self.given = given
        except BaseException as error:
            self.failure = f"credentials: their function raised {type(error).__name__}"
        finally:
            self.done_ns = clock_ns()
            atomic_give(&self.is_done)
            event_set(&self.done)


cdef Preparing preparing_begin(object prepare):
    """Call it in a new thread. Raises RuntimeError or OSError where there is none."""
    # gevent's and eventlet's, where they have patched it: then it is a greenlet.
    from _thread import start_new_thread

    cdef Preparing self = Preparing()
    if event_open(&self.done) != 0:
        raise OSError(errno, "event_open")
    self.is_open = True
    self.generation = current_generation
    start_new_thread(self.run, (prepare,))
    return self


cdef bint preparing_is_stale(Preparing self, int64_t now_ns) noexcept:
    if self.generation != current_generation:
        return True
    return atomic_read(&self.is_done) and now_ns - self.done_ns > PREPARED_FRESH_NS


cdef int preparing_watch(Preparing self) noexcept:
    # Returns a descriptor of the caller's own that is readable when it is done, or
    # -errno.
    cdef int fd = fcntl(self.done.fd, F_DUPFD_CLOEXEC, 0)
    return fd if fd >= 0 else -errno
