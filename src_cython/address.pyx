# Where a master is: literal addresses, unix paths and host names.
#
# getaddrinfo(3) has no non-blocking form and can take seconds, in which no round may
# stand still. So a name, and only a name, is looked up by a short-lived thread of its
# own, at every (re)connect: a server may have moved. The thread tells that it is done
# by closing the write end of a pipe, whose read end is polled like any socket.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport ENAMETOOLONG, errno
from libc.stdint cimport uint16_t
from libc.string cimport memcpy, memset

from _thread import start_new_thread

cdef enum:
    MAX_ADDRESSES = 8      # per name; each gets its share of the connect timeout

cdef struct Address:
    sockaddr_storage storage
    socklen_t size


@cython.final
cdef class AddressList:
    """The addresses of one master, found now or still being looked up."""

    cdef Address addresses[MAX_ADDRESSES]
    cdef int count
    cdef int next              # which one to try next
    cdef int gai_error         # of getaddrinfo, 0 if none
    cdef int done_fd           # write end, owned by the resolver thread

    def __cinit__(self):
        self.done_fd = -1

    def look_up(self, bytes host, bytes port):
        """Look the name up and close done_fd; runs in the resolver thread."""
        cdef addrinfo hints
        cdef addrinfo *found = NULL
        cdef addrinfo *one
        cdef const char *host_text = host
        cdef const char *port_text = port
        cdef int error
        memset(&hints, 0, sizeof(hints))
        hints.ai_family = AF_UNSPEC
        hints.ai_socktype = SOCK_STREAM
        with nogil:
            error = getaddrinfo(host_text, port_text, &hints, &found)
        self.gai_error = error
        one = found
        while error == 0 and one != NULL and self.count < MAX_ADDRESSES:
            memcpy(&self.addresses[self.count].storage, one.ai_addr, one.ai_addrlen)
            self.addresses[self.count].size = one.ai_addrlen
            self.count += 1
            one = one.ai_next
        if error == 0:
            freeaddrinfo(found)
        address_end_look_up(self)


cdef void address_end_look_up(AddressList self) noexcept:
    if self.done_fd >= 0:
        close(self.done_fd)
    self.done_fd = -1


cdef bint address_is_unix(AddressList self, str path) except -1:
    cdef sockaddr_un *unix = <sockaddr_un *>&self.addresses[0].storage
    cdef bytes encoded
    if not path:
        return False
    encoded = path.encode("utf-8", "surrogateescape")
    if len(encoded) >= <Py_ssize_t>sizeof(unix.sun_path):
        raise OSError(ENAMETOOLONG, "unix socket path")
    unix.sun_family = AF_UNIX
    memcpy(unix.sun_path, PyBytes_AS_STRING(encoded), len(encoded))
    self.addresses[0].size = sizeof(sockaddr_un)
    self.count = 1
    return True


cdef bint address_is_literal(AddressList self, bytes host, int port) noexcept:
    cdef sockaddr_in *v4 = <sockaddr_in *>&self.addresses[0].storage
    cdef sockaddr_in6 *v6 = <sockaddr_in6 *>&self.addresses[0].storage
    if inet_pton(AF_INET, PyBytes_AS_STRING(host), &v4.sin_addr) == 1:
        v4.sin_family = AF_INET
        v4.sin_port = htons(<uint16_t>port)
        self.addresses[0].size = sizeof(sockaddr_in)
    elif inet_pton(AF_INET6, PyBytes_AS_STRING(host), &v6.sin6_addr) == 1:
        v6.sin6_family = AF_INET6
        v6.sin6_port = htons(<uint16_t>port)
        self.addresses[0].size = sizeof(sockaddr_in6)
    else:
        return False
    self.count = 1
    return True


cdef int address_begin_look_up(AddressList self, bytes host, int port) except? -1:
    # Returns the descriptor that becomes readable when the thread is done, or -errno.
    cdef int ends[2]
    if pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0:
        return -errno
    self.done_fd = ends[1]
    try:
        start_new_thread(self.look_up, (host, b"%d" % port))
    except BaseException:      # no thread to be had: out of memory, or shutting down
        close(ends[0])
        address_end_look_up(self)
        raise
    return ends[0]
