# The commands of the rounds and of the handshake, as RESP: pure, bytes out.
#
# Which command an operation sends is looked up in the table of scripts.


# The size of a command without its resource, token and script: array and bulk heads,
# fixed words, numbers. Reserved once; the pieces are then copied without a check.
cdef enum:
    COMMAND_OVERHEAD = 256
    FENCE_NAME_SIZE = 18
    BULK_OVERHEAD = 25     # of each further key: "$", 20 digits, two line ends


cdef int check_keys(tuple keys) except -1:
    # They are copied without a further check, so they must be bytes.
    if not keys:
        raise ValueError("no keys")
    for key in keys:
        if type(key) is not bytes:
            raise TypeError("a key that is not bytes")
    return 0


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


cdef inline void put_bytes(Buffer *out, bytes data) noexcept:
    buffer_put(out, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


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
    Buffer *out, Script script, bint by_source, bytes resource, tuple keys, bytes token,
    int64_t ttl_ms, tuple more=None,
) noexcept:
    # Of one key, the resource, where `keys` is None; else of keys that check_keys has
    # seen. EVAL, with the source, is the answer to NOSCRIPT: it runs the script and
    # loads it. ttl_ms is 0 where the script takes no ttl. `more` are arguments behind.
    cdef size_t count = 1 if keys is None else <size_t>len(keys)
    cdef size_t size = (
        COMMAND_OVERHEAD + <size_t>PyBytes_GET_SIZE(script.source)
        + <size_t>PyBytes_GET_SIZE(token)
    )
    cdef int error
    if keys is None:
        size += <size_t>PyBytes_GET_SIZE(resource)
    else:
        size += count * BULK_OVERHEAD
        for key in keys:
            size += <size_t>PyBytes_GET_SIZE(<bytes>key)
    if more is not None:
        for argument in more:
            size += BULK_OVERHEAD + <size_t>PyBytes_GET_SIZE(<bytes>argument)
    error = buffer_reserve(out, size)
    if error != 0:
        return error
    buffer_put(out, b"*", 1)
    out.end += decimal_digits(
        count + (5 if ttl_ms else 4) + (0 if more is None else len(more)),
        out.data + out.end,
    )
    if by_source:
        buffer_put(out, b"\r\n$4\r\nEVAL\r\n", 12)
        put_bulk_bytes(out, script.source)
    else:
        put_bytes(out, script.evalsha)
    if keys is None:
        buffer_put(out, b"$1\r\n1\r\n", 7)
        put_bulk_bytes(out, resource)
    else:
        put_number(out, count)
        for key in keys:
            put_bulk_bytes(out, <bytes>key)
    put_bulk_bytes(out, token)
    if ttl_ms:
        put_number(out, <uint64_t>ttl_ms)
    if more is not None:
        for argument in more:
            put_bulk_bytes(out, <bytes>argument)
    return 0


cdef tuple STAYING = (b"",)


cdef int command_of_gate(
    Buffer *out, Round round, Scripts scripts, bint by_source, tuple leaving
) except -1:
    # At the gate of its queue, a round that is first sent there. `leaving`: the name of
    # this process, as the argument of a release that takes its entry out.
    cdef tuple keys = (round.resource, round_queue(round)) if round.permits else None
    cdef tuple arguments = None
    if round.operation_code != OPERATION_RELEASE:
        arguments = (<Turn>round.turn).arguments
        if round.fencing is not None:
            arguments += fencing_proposal(<Fencing>round.fencing)
    elif round.our_entry != OUR_ENTRY_AS_IS:
        arguments = leaving if round.our_entry == OUR_ENTRY_LEAVES else STAYING
    return command_script(
        out, scripts_of(scripts, round.operation_code, round.kind, ROLE_GATE),
        by_source, round.resource, keys, round.token, 0, arguments,
    )


cdef int command_of_round(
    Buffer *out, Round round, Scripts scripts, bint by_source, bint is_second
) except -1:
    # is_second: it was sent on an earlier connection, and may have been executed. Then
    # an ACQUIRE goes by a script that takes its own token for a grant.
    cdef int operation = round.operation_code
    cdef int64_t ttl_ms = 0
    cdef Script script
    cdef Row row
    cdef bint acquires_again, is_set
    cdef bytes token = round.token
    if round.fencing is not None:
        if fencing_is_plain(round, by_source, is_second):
            return command_numbered(out, round, scripts.name_prefix)
        return command_script(
            out, scripts.named["acquire_again" if is_second else "acquire_all"],
            by_source or is_second, round.resource, round.keys, round.token, 0,
            (fencing_ttl(round),) + fencing_proposal(<Fencing>round.fencing),
        )
    row = rows[operation][round.kind]
    acquires_again = is_second and operation == OPERATION_ACQUIRE
    is_set = row.is_set and not acquires_again
    # A key without expiry: SET and acquire_again leave the ttl out, and the other
    # scripts are given the longest.
    if row.takes_ttl and (
        round.terms.has_expiry or not (is_set or acquires_again)
    ):
        ttl_ms = round.terms.ttl_ms
    if is_set:
        return command_acquire(out, round.resource, token, ttl_ms)
    script = scripts_of(
        scripts, operation, round.kind, ROLE_AGAIN if is_second else ROLE_FIRST
    )
    if script is None:
        raise StateError("no script of this operation for this kind of lock")
    if operation == OPERATION_INSPECT and round.permits:
        token = decimal_bytes(round.permits)      # in its place: how many slots
    return command_script(
        out, script, by_source or acquires_again, round.resource, round.keys, token,
        ttl_ms,
        (<Turn>round.turn).arguments if operation >= OPERATION_ASK_TURN else None,
    )


cdef int command_undo(
    Buffer *out, Round acquire, Scripts scripts, bint by_source
) except -1:
    # The release of what an ACQUIRE may take.
    return command_script(
        out, scripts_of(scripts, OPERATION_RELEASE, acquire.kind, ROLE_FIRST),
        by_source, acquire.resource, acquire.keys, acquire.token, 0,
    )


cdef int command_numbered(Buffer *out, Round round, bytes prefix) noexcept:
    # An ACQUIRE of one key with fencing: SET, ZADD of the number behind it, PEXPIRE.
    cdef Fencing fencing = <Fencing>round.fencing
    cdef int error = command_acquire(
        out, round.resource, round.token, round.terms.ttl_ms
    )
    if error == 0:
        error = buffer_reserve(
            out,
            COMMAND_OVERHEAD + 2 * <size_t>PyBytes_GET_SIZE(prefix)
            + 2 * <size_t>PyBytes_GET_SIZE(round.resource),
        )
    if error != 0:
        return error
    buffer_put(out, b"*6\r\n$4\r\nZADD\r\n", 14)
    put_fence_name(out, prefix, round.resource)
    buffer_put(out, b"$2\r\nGT\r\n$2\r\nCH\r\n", 16)
    put_number(out, <uint64_t>fencing.proposed)
    buffer_put(out, b"$1\r\nf\r\n", 7)
    if fencing.is_renewing:
        buffer_put(out, b"*3\r\n$7\r\nPEXPIRE\r\n", 17)
        put_fence_name(out, prefix, round.resource)
        put_number(out, <uint64_t>fencing.life_ms)
    return 0


cdef void put_fence_name(Buffer *out, bytes prefix, bytes resource) noexcept:
    # The key of its number, as the scripts name it.
    cdef char *at = out.data + out.end
    at[0] = c'$'
    out.end += 1 + decimal_digits(
        FENCE_NAME_SIZE + <size_t>PyBytes_GET_SIZE(prefix)
        + <size_t>PyBytes_GET_SIZE(resource),
        at + 1,
    )
    buffer_put(out, b"\r\n", 2)
    put_bytes(out, prefix)
    buffer_put(out, b"fastredlock:fence:", FENCE_NAME_SIZE)
    put_bytes(out, resource)
    buffer_put(out, b"\r\n", 2)


cdef int command_fence(
    Buffer *out, Round round, Scripts scripts, int fence, bint by_source
) except -1:
    # A further command of an ACQUIRE with fencing: the second write, or one more.
    return command_script(
        out, scripts.named["write_fence" if fence == FENCE_WRITE else "next_fence"],
        by_source, round.resource, round.keys, round.token, 0,
        fencing_proposal(<Fencing>round.fencing),
    )


cdef bytes command_encode(tuple words):
    # Any other command; for the handshake, where nanoseconds do not count.
    pieces = [b"*", decimal_bytes(len(words)), b"\r\n"]
    for word in words:
        pieces += (b"$", decimal_bytes(len(<bytes?>word)), b"\r\n", word, b"\r\n")
    return b"".join(pieces)


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
    Script script not None, bint by_source, keys not None, bytes token not None,
    int64_t ttl_ms,
):
    """Encode `EVALSHA sha1 n key... token [ttl_ms]`, or EVAL where by_source.

    `keys` are one key, bytes, or a tuple of them.
    """
    cdef Buffer out
    cdef bytes resource = None
    cdef tuple several = None
    if type(keys) is tuple:
        several = keys
        check_keys(several)
    else:
        resource = <bytes?>keys
    memset(&out, 0, sizeof(Buffer))
    try:
        if command_script(
            &out, script, by_source, resource, several, token, ttl_ms
        ) != 0:
            raise MemoryError
        return out.data[:out.end]
    finally:
        buffer_free(&out)
