# Tokens of leases: 20 bytes from the kernel, and who asked for them.
#
# "<27 characters of base64url>@<owner>", without "@" where there is no owner. In hex
# the random bytes alone would take 40: with most owners a token is no longer than that.
# The random part comes first, and has one length: so an owner is distinct from any
# value of other clients, and no owner can make two tokens equal.
#
# They are never taken from a pool of ours: a pool is copied by fork and by a snapshot
# of the machine, and two holders with one token delete each other's lock.

cdef enum:
    TOKEN_CHARS = 27             # of base64url, without padding
    TOKENS_AT_ONCE = 12          # getrandom(2) never cuts up to 256 bytes short

cdef const char *BASE64URL = (
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)


@cython.final
cdef class TokenSource:
    """Draws the tokens of one FastRedlock; any thread may."""

    cdef bytes owner
    cdef bytes ending            # what follows the random part; "": nothing
    cdef bint has_pid            # behind the owner, ":" and the number of the process
    cdef uint32_t generation     # of the process that the ending names

    def __init__(self, bytes owner not None, bint has_pid=False):
        self.owner = owner
        self.has_pid = has_pid
        tokens_set_ending(self)

    def draw(self):
        """Draw a token that no one can guess or repeat."""
        return tokens_draw(self)

    def draw_many(self, Py_ssize_t count):
        """List so many fresh tokens, with few calls of the kernel."""
        cdef uint8_t drawn[TOKENS_AT_ONCE * TOKEN_BYTES]
        cdef list tokens = []
        cdef int i, some
        while count > 0:
            some = <int>min(count, <Py_ssize_t>TOKENS_AT_ONCE)
            draw(drawn, some * TOKEN_BYTES)
            for i in range(some):
                tokens.append(tokens_text(self, drawn + i * TOKEN_BYTES))
            count -= some
        return tokens


cdef bytes tokens_draw(TokenSource self):
    cdef uint8_t drawn[TOKEN_BYTES]
    draw(drawn, TOKEN_BYTES)
    return tokens_text(self, drawn)


cdef int tokens_set_ending(TokenSource self) except -1:
    cdef bytes owner = self.owner
    if self.has_pid:
        owner = b"%b:%d" % (owner, getpid())
    self.ending = b"@" + owner if owner else b""
    self.generation = current_generation
    return 0


cdef bytes tokens_text(TokenSource self, const uint8_t *drawn):
    cdef bytes ending
    cdef bytes token
    cdef char *at
    cdef uint32_t bits
    cdef int i
    if self.generation != current_generation:      # a forked child: another pid
        tokens_set_ending(self)
    ending = self.ending
    token = PyBytes_FromStringAndSize(NULL, TOKEN_CHARS + PyBytes_GET_SIZE(ending))
    at = PyBytes_AS_STRING(token)
    for i in range(0, TOKEN_BYTES - 2, 3):
        bits = <uint32_t>drawn[i] << 16 | <uint32_t>drawn[i + 1] << 8 | drawn[i + 2]
        at[0] = BASE64URL[bits >> 18]
        at[1] = BASE64URL[bits >> 12 & 63]
        at[2] = BASE64URL[bits >> 6 & 63]
        at[3] = BASE64URL[bits & 63]
        at += 4
    bits = <uint32_t>drawn[TOKEN_BYTES - 2] << 8 | drawn[TOKEN_BYTES - 1]
    at[0] = BASE64URL[bits >> 10]
    at[1] = BASE64URL[bits >> 4 & 63]
    at[2] = BASE64URL[bits << 2 & 63]
    memcpy(at + 3, PyBytes_AS_STRING(ending), PyBytes_GET_SIZE(ending))
    return token
