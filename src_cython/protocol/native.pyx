# Compare-and-delete and compare-and-set as commands of the server, instead of scripts.
#
#   RELEASE   DELIFEQ key token                  Valkey from 9.0: 1 or 0, as the script
#             DELEX key IFEQ token               Redis from 8.4: the same
#   EXTEND    SET key token IFEQ token PX ttl    both: OK, or nil (gone, or another's)
#
# They mean what the scripts mean to the letter: no key is created, and one of another
# type is an error. They cost the server less than half of it.
#
# Each connection asks for them in its handshake, never by a version: a fleet may be
# mixed, and a proxy know other commands than the server behind it. An error that one of
# them gives has done nothing, and the script is asked instead (master/replies): an ACL,
# or a server without memory, may refuse the one and allow the other.

cdef enum:                   # in which form a round's command is sent to a master
    FORM_SCRIPT = 0          # ...or as SET NX, of an ACQUIRE
    FORM_DELIFEQ = 1
    FORM_DELEX = 2
    FORM_GATE = 3            # by the script of its gate
    FORM_QUEUE_CHECK = 4     # natively at its gate, and EXISTS of the queue behind it
    FORMS = 5

cdef bytes QUEUE = b"fastredlock:queue:"      # behind the key_prefix
cdef tuple NATIVE_NAMES = (b"DELIFEQ", b"DELEX")      # in the order of the forms


cdef int native_form(object reply) except -1:
    # Which of them a server has, from its answer to COMMAND INFO.
    if type(reply) is list and len(reply) == len(NATIVE_NAMES):
        for place, name in enumerate(NATIVE_NAMES):
            command = reply[place]
            if type(command) is list and command and type(command[0]) is bytes and (
                (<bytes>command[0]).upper() == name
            ):
                return FORM_DELIFEQ + place
    return FORM_SCRIPT


cdef bytes native_probe_key(Scripts scripts):
    # For the handshake; None where locks need a script besides.
    if not scripts.releases_natively or scripts.is_fencing:
        return None
    return scripts.name_prefix + b"fastredlock:probe"


cdef inline bint native_replaces(Round round, Scripts scripts) noexcept:
    if not kind_is(round.kind, KIND_IS_NATIVE):
        return False
    if round.operation_code == OPERATION_RELEASE:
        return scripts.releases_natively
    return round.operation_code == OPERATION_EXTEND


cdef int native_command(Buffer *out, Round round, int form) noexcept:
    cdef size_t size = (
        COMMAND_OVERHEAD + <size_t>PyBytes_GET_SIZE(round.resource)
        + 2 * <size_t>PyBytes_GET_SIZE(round.token)
    )
    cdef int error = buffer_reserve(out, size)
    if error != 0:
        return error
    if round.operation_code == OPERATION_EXTEND:
        buffer_put(out, b"*7\r\n$3\r\nSET\r\n", 13)
        put_bulk_bytes(out, round.resource)
        put_bulk_bytes(out, round.token)
        buffer_put(out, b"$4\r\nIFEQ\r\n", 10)
        put_bulk_bytes(out, round.token)
        buffer_put(out, b"$2\r\nPX\r\n", 8)
        put_number(out, <uint64_t>round.terms.ttl_ms)
        return 0
    if form == FORM_DELIFEQ:
        buffer_put(out, b"*3\r\n$7\r\nDELIFEQ\r\n", 17)
        put_bulk_bytes(out, round.resource)
    else:
        buffer_put(out, b"*4\r\n$5\r\nDELEX\r\n", 15)
        put_bulk_bytes(out, round.resource)
        buffer_put(out, b"$4\r\nIFEQ\r\n", 10)
    put_bulk_bytes(out, round.token)
    return 0


cdef int native_queue_check(Buffer *out, Round round, bytes prefix) noexcept:
    # Does anybody wait? The reply is no vote (engine/queue_check).
    cdef int error = native_queue_check_begin(out, 1)
    return error or native_queue_check_add(out, round, prefix)


cdef int native_queue_check_begin(Buffer *out, int queues) noexcept:
    cdef char text[20]
    cdef int error = buffer_reserve(out, COMMAND_OVERHEAD)
    if error != 0:
        return error
    buffer_put(out, b"*", 1)
    buffer_put(out, text, <size_t>decimal_digits(<uint64_t>queues + 1, text))
    buffer_put(out, b"\r\n$6\r\nEXISTS\r\n", 14)
    return 0


cdef int native_queue_check_add(Buffer *out, Round round, bytes prefix) noexcept:
    cdef char text[20]
    cdef size_t size = (
        <size_t>PyBytes_GET_SIZE(prefix) + <size_t>PyBytes_GET_SIZE(QUEUE)
        + round_queue_size(round)
    )
    cdef int error = buffer_reserve(out, COMMAND_OVERHEAD + size)
    if error != 0:
        return error
    buffer_put(out, b"$", 1)
    buffer_put(out, text, <size_t>decimal_digits(size, text))
    buffer_put(out, b"\r\n", 2)
    put_bytes(out, prefix)
    put_bytes(out, QUEUE)
    buffer_put(out, PyBytes_AS_STRING(round.resource), round_queue_size(round))
    buffer_put(out, b"\r\n", 2)
    return 0
