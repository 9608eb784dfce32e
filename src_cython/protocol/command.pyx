# What is asked of a master, as RESP: pure, bytes in and bytes out.
#
# The key is the resource and the value is the token, without prefix: whatever other
# client follows the Redlock page excludes us, and we exclude it. Several keys at once
# are a script's, with one token for all of them: each looks to others like any lock.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset


@cython.final
cdef class Script:
    """One Lua script: its source, and the EVALSHA head that is sent instead."""

    cdef readonly bytes source
    cdef readonly bytes sha1
    cdef bytes evalsha     # "EVALSHA <sha1> 1", without the array header

    def __init__(self, bytes source not None, bytes sha1 not None):
        if len(sha1) != 40:
            raise ValueError("sha1 must be 40 hex digits")
        self.source = source
        self.sha1 = sha1
        self.evalsha = b"$7\r\nEVALSHA\r\n$40\r\n" + sha1 + b"\r\n$1\r\n1\r\n"


# All that a command holds besides its resource, token and script: array and bulk heads,
# fixed words, numbers. Reserved once; the pieces are then copied without a check.
cdef enum:
    COMMAND_OVERHEAD = 256
    BULK_OVERHEAD = 25     # of each further key: "$", 20 digits, two line ends


cdef int check_keys(tuple keys) except -1:
    # What is copied without a check must be bytes.
    if not keys:
        raise ValueError("no keys")
    for key in keys:
        if type(key) is not bytes:
            raise TypeError("a key that is not bytes")
    return 0


cdef int decimal_digits(uint64_t value, char *text) noexcept nogil:
    # Writes value's digits at text (20 at the most) and returns how many.
    cdef char reversed_digits[20]
    cdef int count = 0, i
    while True:
        reversed_digits[count] = <char>(48 + <int>(value % 10))   # '0'
        count += 1
        value //= 10
        if value == 0:
            break
    for i in range(count):
        text[i] = reversed_digits[count - 1 - i]
    return count


cdef void put_bulk(Buffer *out, const char *data, size_t size) noexcept nogil:
    # "$<size>\r\n<data>\r\n"
    cdef char *at = out.data + out.end
    at[0] = c'$'
    at += 1 + decimal_digits(size, at + 1)
    at[0] = c'\r'
    at[1] = c'\n'
    memcpy(at + 2, data, size)
    at += 2 + size
    at[0] = c'\r'
    at[1] = c'\n'
    out.end = at + 2 - out.data


cdef void put_bulk_bytes(Buffer *out, bytes data) noexcept:
    put_bulk(out, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


cdef void put_number(Buffer *out, uint64_t value) noexcept nogil:
    cdef char text[20]
    put_bulk(out, text, <size_t>decimal_digits(value, text))


cdef int command_acquire(
    Buffer *out, bytes resource, bytes token, int64_t ttl_ms
) noexcept:
    # ttl_ms is 0 for a key without expiry.
    cdef int error = buffer_reserve(
        out,
        COMMAND_OVERHEAD
        + <size_t>PyBytes_GET_SIZE(resource) + <size_t>PyBytes_GET_SIZE(token),
    )
    if error != 0:
        return error
    if ttl_ms == 0:
        buffer_put(out, b"*4\r\n$3\r\nSET\r\n", 13)
        put_bulk_bytes(out, resource)
        put_bulk_bytes(out, token)
        buffer_put(out, b"$2\r\nNX\r\n", 8)
        return 0
    buffer_put(out, b"*6\r\n$3\r\nSET\r\n", 13)
    put_bulk_bytes(out, resource)
    put_bulk_bytes(out, token)
    buffer_put(out, b"$2\r\nNX\r\n$2\r\nPX\r\n", 16)
    put_number(out, <uint64_t>ttl_ms)
    return 0


cdef int command_script(
    Buffer *out, Script script, bint by_source, bytes resource, bytes token,
    int64_t ttl_ms,
) noexcept:
    # EVAL, with the source, is the answer to NOSCRIPT: it runs the script and loads it.
    # ttl_ms is left out where it is 0: the script takes no ttl.
    cdef int error = buffer_reserve(
        out,
        COMMAND_OVERHEAD + <size_t>PyBytes_GET_SIZE(script.source)
        + <size_t>PyBytes_GET_SIZE(resource) + <size_t>PyBytes_GET_SIZE(token),
    )
    if error != 0:
        return error
    buffer_put(out, b"*6\r\n" if ttl_ms else b"*5\r\n", 4)
    if by_source:
        buffer_put(out, b"$4\r\nEVAL\r\n", 10)
        put_bulk_bytes(out, script.source)
        buffer_put(out, b"$1\r\n1\r\n", 7)
    else:
        buffer_put(
            out, PyBytes_AS_STRING(script.evalsha),
            <size_t>PyBytes_GET_SIZE(script.evalsha),
        )
    put_bulk_bytes(out, resource)
    put_bulk_bytes(out, token)
    if ttl_ms:
        put_number(out, <uint64_t>ttl_ms)
    return 0


cdef int command_script_of_all(
    Buffer *out, Script script, bint by_source, tuple keys, bytes token, int64_t ttl_ms
) noexcept:
    # The same of several keys, which check_keys has seen.
    cdef size_t count = <size_t>len(keys), size
    cdef int error
    size = (
        COMMAND_OVERHEAD + <size_t>PyBytes_GET_SIZE(script.source)
        + <size_t>PyBytes_GET_SIZE(token) + count * BULK_OVERHEAD
    )
    for key in keys:
        size += <size_t>PyBytes_GET_SIZE(<bytes>key)
    error = buffer_reserve(out, size)
    if error != 0:
        return error
    buffer_put(out, b"*", 1)
    out.end += decimal_digits(count + (5 if ttl_ms else 4), out.data + out.end)
    if by_source:
        buffer_put(out, b"\r\n$4\r\nEVAL\r\n", 12)
        put_bulk_bytes(out, script.source)
    else:
        buffer_put(out, b"\r\n$7\r\nEVALSHA\r\n", 15)
        put_bulk_bytes(out, script.sha1)
    put_number(out, count)
    for key in keys:
        put_bulk_bytes(out, <bytes>key)
    put_bulk_bytes(out, token)
    if ttl_ms:
        put_number(out, <uint64_t>ttl_ms)
    return 0


cdef bytes command_encode(tuple words):
    # Any other command; for the handshake, where nobody counts nanoseconds.
    return b"".join(
        [b"*%d\r\n" % len(words)] + [b"$%d\r\n%b\r\n" % (len(w), w) for w in words]
    )


def encode_acquire(bytes resource not None, bytes token not None, int64_t ttl_ms):
    """Encode `SET resource token NX [PX ttl_ms]`."""
    cdef Buffer out
    memset(&out, 0, sizeof(Buffer))
    try:
        if command_acquire(&out, resource, token, ttl_ms) != 0:
            raise MemoryError
        return out.data[:out.end]
    finally:
        buffer_free(&out)


def encode_script(
    Script script not None, bint by_source, bytes resource not None,
    bytes token not None, int64_t ttl_ms,
):
    """Encode `EVALSHA sha1 1 resource token [ttl_ms]`, or EVAL where by_source."""
    cdef Buffer out
    memset(&out, 0, sizeof(Buffer))
    try:
        if command_script(&out, script, by_source, resource, token, ttl_ms) != 0:
            raise MemoryError
        return out.data[:out.end]
    finally:
        buffer_free(&out)


def encode_script_of_all(
    Script script not None, bint by_source, tuple keys not None,
    bytes token not None, int64_t ttl_ms,
):
    """Encode `EVALSHA sha1 n key... token [ttl_ms]`, or EVAL where by_source."""
    cdef Buffer out
    check_keys(keys)
    memset(&out, 0, sizeof(Buffer))
    try:
        if command_script_of_all(&out, script, by_source, keys, token, ttl_ms) != 0:
            raise MemoryError
        return out.data[:out.end]
    finally:
        buffer_free(&out)
