# Where a master is: literal addresses, unix paths, and the results of a name look-up.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport ENAMETOOLONG
from libc.stdint cimport uint16_t
from libc.string cimport memcpy

cdef enum:
    MAX_ADDRESSES = 8      # per name; each gets its share of the connect timeout

cdef struct Address:
    sockaddr_storage storage
    socklen_t size


cdef class LookUp            # lookup.pyx


@cython.final
@cython.internal
cdef class AddressList:
    """The addresses of one master, found now or still being looked up."""

    cdef Address addresses[MAX_ADDRESSES]
    cdef int count
    cdef int next              # which one to try next
    cdef LookUp look_up        # under way, or None


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
