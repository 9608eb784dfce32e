# What a connection needs before it is opened, and what may block: a login from the
# caller's function, TLS files read again, its primary by the sentinels, the addresses
# of a host name.

# --- addresses ------------------------------------------------------------------------

import _socket

cdef enum:
    MAX_ADDRESSES = 8      # per name; each gets a share of the connect timeout

cdef struct Address:
    sockaddr_storage storage
    socklen_t size


@cython.final
@cython.internal
cdef class Addresses:
    cdef int count
    cdef Address[MAX_ADDRESSES] each


cdef Addresses addresses_of_path(str path):
    cdef Addresses self = Addresses.__new__(Addresses)
    cdef sockaddr_un *unix = <sockaddr_un *>&self.each[0].storage
    cdef bytes encoded = path.encode("utf-8", "surrogateescape")
    if len(encoded) >= <Py_ssize_t>sizeof(unix.sun_path):
        raise OSError(ENAMETOOLONG, "unix socket path")
    unix.sun_family = AF_UNIX
    memcpy(unix.sun_path, PyBytes_AS_STRING(encoded), len(encoded))
    self.each[0].size = sizeof(sockaddr_un)
    self.count = 1
    return self


cdef int addresses_add(Addresses self, bytes host, bytes port) except -1:
    # Add a literal address; nothing is added for a name.
    cdef addrinfo hints
    cdef addrinfo *found = NULL
    memset(&hints, 0, sizeof(hints))
    hints.ai_flags = AI_NUMERICHOST
    hints.ai_family = AF_UNSPEC
    hints.ai_socktype = SOCK_STREAM
    if self.count == MAX_ADDRESSES or getaddrinfo(host, port, &hints, &found) != 0:
        return 0
    memcpy(&self.each[self.count].storage, found.ai_addr, found.ai_addrlen)
    self.each[self.count].size = found.ai_addrlen
    self.count += 1
    freeaddrinfo(found)


def addresses_of_name(bytes host not None, int port):
    """Look a host name up; blocks. Returns its addresses, or why there are none."""
    cdef Addresses self = Addresses.__new__(Addresses)
    try:
        # gevent may have patched it. Nothing is imported by a call (a fork meanwhile).
        find = getattr(modules.get("socket"), "getaddrinfo", _socket.getaddrinfo)
        found = find(host, port, 0, SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        return f"name look-up: {reason.lower()}"
    for _, _, _, _, place in found:
        scope = f"%{place[3]}" if len(place) > 3 and place[3] else ""
        addresses_add(self, f"{place[0]}{scope}".encode(), decimal_bytes(port))
    return self


# --- preparing ------------------------------------------------------------------------
# All of that is done in a thread of its own, one per connection; a literal address, and
# a unix path, need none.
#
# getaddrinfo(3) has no non-blocking form. The caller's function may ask a store of
# secrets over the network, take seconds, raise, or call us back, and files may be on a
# disk that is slow. So nothing of it runs inside a step: no round waits for it, and a
# lock that the function takes, of this engine too, is a call like any other thread's.
# The thread sets an event when it is done, and the connection polls a duplicate of its
# descriptor.
#
# What it gives is used for one connection: a server may have moved, and a password that
# was refused is asked for anew. A connection that gives up leaves the thread running;
# the next one of this master waits for the same thread, or takes what it gave if that
# is still fresh: so no more than one runs for each master. A forked child has no such
# thread.
#
# The thread holds the function and this object alone, never the engine: it may outlive
# all else, and ends with the interpreter.

cdef int64_t PREPARED_FRESH_NS = 60_000_000_000      # a client that blocks may be idle


@cython.final
@cython.internal
cdef class Preparing:
    cdef Event done              # set from then on
    cdef int is_done             # written last by the thread
    cdef int64_t done_ns
    cdef uint32_t generation     # of the process that has the thread
    cdef tuple place             # (host, port), as known before; host None: no name
    cdef tuple given             # (user, password, ssl.SSLContext, place), each may be
    #                              None; None: as in the settings
    cdef Addresses addresses     # of a host name
    cdef str failure             # why there is none of it

    def __cinit__(self):
        self.done.fd = -1

    def __dealloc__(self):
        event_close(&self.done)

    def run(self, prepare):
        """Do it, in this thread; an error is named by its type, for it may show a
        password."""
        try:
            host, port = self.place
            given = None if prepare is None else prepare()
            if type(given) is tuple and given[3] is not None:
                host, port = given[3][:2]
            found = given
            if host is not None and type(given) is not str:
                found = addresses_of_name(host, port)
            if type(found) is str:
                self.failure = found
            else:
                self.given, self.addresses = given, found if host is not None else None
        except BaseException as error:
            self.failure = f"credentials: their function raised {type(error).__name__}"
        finally:
            self.done_ns = clock_ns()
            atomic_give(&self.is_done)
            event_set(&self.done)


cdef Preparing preparing_begin(object prepare, tuple place):
    """Do it in a new thread. Raises RuntimeError or OSError where there is none.

    prepare: None, if only a name is looked up; place: its host is None, if none is.
    """
    # gevent's, where it has patched it: then it is a greenlet.
    from _thread import start_new_thread

    cdef Preparing self = Preparing()
    if event_open(&self.done) != 0:
        raise OSError(errno, "event_open")
    self.generation, self.place = current_generation, place
    start_new_thread(self.run, (prepare,))
    return self


cdef bint preparing_is_stale(Preparing self, int64_t now_ns) noexcept:
    if self.generation != current_generation:
        return True
    return atomic_get(&self.is_done) and now_ns - self.done_ns > PREPARED_FRESH_NS
