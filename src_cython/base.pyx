# What everything else stands on: the clock and the other things of the kernel, the
# tokens of leases, and the buffer of bytes to be sent.

# --- clock ----------------------------------------------------------------------------
# Time, random bytes and the fork generation: the three things taken from the kernel.
# And by which calls.


cdef int64_t clock_ns() noexcept nogil:
    # Linux's CLOCK_BOOTTIME goes on while the machine sleeps, as the servers' ttl does;
    # its CLOCK_MONOTONIC would make a lease look alive after a suspend. clock_gettime
    # cannot fail for these clocks (clock_gettime(2)).
    cdef timespec now
    clock_gettime(SYSTEM_CLOCK, &now)
    return <int64_t>now.tv_sec * NS_PER_S + now.tv_nsec


cdef int64_t wall_ns() noexcept nogil:
    # For numbers of grants (round/fencing) and in tokens: no decision takes it.
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * NS_PER_S + now.tv_nsec


def now_ns():
    """Read the clock of all decisions: int64 ns, monotonic, goes on during suspend."""
    return clock_ns()


def is_portable():
    """Whether this build does without the system calls that only Linux has."""
    return bool(IS_PORTABLE)


cdef void sleep_ns(int64_t duration_ns) noexcept:
    with nogil:
        poll_for(NULL, 0, duration_ns)


cdef enum:
    TOKEN_BYTES = 20


def draw_token():
    """Draw 20 bytes from the kernel, in hex: 40 bytes that no one can guess or repeat.
    """
    cdef uint8_t drawn[TOKEN_BYTES]
    draw(drawn, TOKEN_BYTES)
    return drawn[:TOKEN_BYTES].hex().encode()


cdef int draw(void *drawn, int size) except -1:
    # getrandom(2): up to 256 bytes are never cut short by a signal once the pool is up.
    while random_draw(drawn, size) != size:
        if errno != EINTR:
            raise OSError(errno, "random_draw")
        PyErr_CheckSignals()


# Counts the forks between the first process and this one. An engine remembers the
# generation it was made or reset in: a difference means that its sockets are the
# parent's. Cheaper than getpid(2) in every round, and it sees a fork made by C code.
cdef uint32_t current_generation = 0


cdef void generation_on_fork() noexcept nogil:
    global current_generation, descriptor_epoch
    current_generation += 1
    descriptor_epoch += 1


def fork_generation():
    """Count the forks between the first process and this one."""
    return current_generation


if pthread_atfork(NULL, NULL, generation_on_fork) != 0:
    raise MemoryError("pthread_atfork")


def draw_fraction():
    """Draw a float in [0, 1) from the kernel: a forked child must draw another."""
    cdef uint64_t drawn = 0
    draw(&drawn, sizeof(drawn))
    return (drawn >> 11) * (1.0 / (<uint64_t>1 << 53))


# --- tokens ---------------------------------------------------------------------------
# Tokens of leases: 20 bytes from the kernel, who asked for them, and when.
#
# "<27 characters of base64url>@<owner>~<second>", only the first 27 if there is no
# owner. The second (Unix time, 10 digits) is for people, and nothing is decided by it.
# A reader accepts 64 bytes behind "@", so an owner that is too long for both has none.
# The random part comes first, and has one length: so an owner is distinct from any
# value of other clients, and no owner can make two tokens equal.
#
# They are never taken from a pool of ours: a pool is copied by fork and by a snapshot
# of the machine, and two holders with one token delete each other's lock.

cdef enum:
    TOKEN_CHARS = 27             # of base64url, without padding
    TIME_CHARS = 11              # "~" and the second
    MOST_ENDING = 65             # "@" and 64 bytes

cdef char *BASE64URL = (
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)


@cython.final
cdef class TokenSource:
    """Draws the tokens of one FastRedlock; any thread may."""

    cdef bytes owner
    cdef bytes ending            # what follows the random part; "": nothing
    cdef bint has_pid            # behind the owner, ":" and the number of the process
    cdef uint32_t generation     # of the process that the ending names...
    cdef int64_t second          # ...and when

    def __init__(self, bytes owner not None, bint has_pid=False):
        self.owner = owner
        self.has_pid = has_pid

    def draw(self):
        return tokens_draw(self)


cdef bytes tokens_owner(TokenSource self):
    # "@" and the owner of this process; "": it has none. It may be in a pass.
    if self.has_pid:
        return b"@" + self.owner + b":" + decimal_bytes(getpid())
    return b"@" + self.owner if self.owner else b""


cdef int tokens_set_ending(TokenSource self, int64_t second) except -1:
    # Threads share a source: all at once.
    cdef bytes ending = tokens_owner(self)
    if 0 < len(ending) <= MOST_ENDING - TIME_CHARS:
        ending = ending + b"~" + decimal_bytes(second)
    self.ending, self.second, self.generation = ending, second, current_generation


cdef bytes tokens_draw(TokenSource self):
    cdef uint8_t drawn[TOKEN_BYTES + 1]
    cdef char text[TOKEN_CHARS + 1]
    cdef bytes token
    cdef int64_t second = wall_ns() // NS_PER_S
    cdef const char *letters = BASE64URL
    cdef uint32_t i, bits
    draw(drawn, TOKEN_BYTES)
    drawn[TOKEN_BYTES] = 0
    if self.ending is None or second != self.second or (
        self.generation != current_generation      # a forked child: another pid
    ):
        tokens_set_ending(self, second)
    for i in range((TOKEN_CHARS + 1) // 4):      # 3 bytes are 4 characters
        bits = <uint32_t>drawn[3 * i] << 16 | drawn[3 * i + 1] << 8 | drawn[3 * i + 2]
        text[4 * i] = letters[bits >> 18]
        text[4 * i + 1] = letters[bits >> 12 & 63]
        text[4 * i + 2] = letters[bits >> 6 & 63]
        text[4 * i + 3] = letters[bits & 63]
    token = PyBytes_FromStringAndSize(NULL, TOKEN_CHARS + len(self.ending))
    memcpy(PyBytes_AS_STRING(token), text, TOKEN_CHARS)
    memcpy(
        PyBytes_AS_STRING(token) + TOKEN_CHARS, PyBytes_AS_STRING(self.ending),
        len(self.ending),
    )
    return token


# --- buffer ---------------------------------------------------------------------------
# Bytes to be sent: [start, end) of one growing allocation; and numbers as text.


cdef struct Buffer:
    char *data
    size_t start
    size_t end
    size_t capacity


cdef enum:
    BUFFER_FIRST_CAPACITY = 1024      # holds one command of the usual size
    BUFFER_KEPT_CAPACITY = 65536      # a larger one is given back once it is empty


cdef inline size_t buffer_length(Buffer *self) noexcept nogil:
    return self.end - self.start


cdef inline int buffer_reserve(Buffer *self, size_t size) noexcept nogil:
    return 0 if self.end + size <= self.capacity else buffer_grow(self, size)


cdef int buffer_grow(Buffer *self, size_t size) noexcept nogil:
    cdef size_t capacity
    cdef char *grown
    if self.start > 0 and self.start >= buffer_length(self):  # it is never emptied
        memmove(self.data, self.data + self.start, buffer_length(self))
        self.end -= self.start
        self.start = 0
        if self.end + size <= self.capacity:
            return 0
    capacity = max(self.capacity * 2, <size_t>BUFFER_FIRST_CAPACITY)
    while capacity < self.end + size:
        capacity *= 2
    grown = <char *>realloc(self.data, capacity)
    if grown == NULL:
        return -ENOMEM
    self.data = grown
    self.capacity = capacity
    return 0


cdef inline int buffer_append(
    Buffer *self, const char *data, size_t size
) noexcept nogil:
    cdef int error = buffer_reserve(self, size)
    if error == 0:
        memcpy(self.data + self.end, data, size)
        self.end += size
    return error


cdef void buffer_consume(Buffer *self, size_t size) noexcept nogil:
    self.start += size
    if self.start == self.end:
        self.start = self.end = 0
        if self.capacity > BUFFER_KEPT_CAPACITY:
            buffer_free(self)


cdef void buffer_free(Buffer *self) noexcept nogil:
    free(self.data)
    memset(self, 0, sizeof(Buffer))


cdef int decimal_digits(uint64_t value, char *text) noexcept nogil:
    # Writes value's digits at text (20 at the most) and returns how many.
    cdef char digits[20]
    cdef int at = 20
    while value > 0 or at == 20:
        at -= 1
        digits[at] = <char>(c'0' + <int>(value % 10))
        value //= 10
    memcpy(text, digits + at, 20 - at)
    return 20 - at


cdef bytes decimal_bytes(uint64_t value):
    # As b"%d" % value; but CPython runs signal handlers while it formats an integer.
    cdef char text[20]
    return PyBytes_FromStringAndSize(text, decimal_digits(value, text))


# --- pass -----------------------------------------------------------------------------
# What makes a pass atomic (engine/pass). A pass has the GIL from its first line to its
# last, so one count and one list serve all engines.

cdef int passes = 0              # that are open: one opens others inside of it
cdef list behind_passes = []     # their last references to a caller's objects


cdef inline bint pass_begin() noexcept:
    # Returns whether garbage was collected until now.
    global passes
    passes += 1
    return PyGC_Disable()


cdef inline void pass_end(bint collects) noexcept:
    global passes
    passes -= 1
    if collects:
        PyGC_Enable()
    if passes == 0 and behind_passes:
        pass_drop()


cdef int pass_drop() except -1:
    # What runs when these go may call the engine: it is between two passes.
    global behind_passes
    cdef list dropped = behind_passes
    behind_passes = []
    dropped.clear()


cdef inline object list_take(list entries):
    # Its first one. (`pop(0)` looks its method up, in 300 instructions.) A list that is
    # emptied keeps its room, or the next entry allocates it anew.
    first = entries[0]
    if len(entries) == 1:
        Py_SET_SIZE(entries, 0)
        Py_DECREF(first)
    else:
        PyList_SetSlice(entries, 0, 1, NULL)
    return first


cdef inline int pass_keep(object last) except -1:
    # Of an object that goes in a pass: what a caller has given it stays until behind.
    if passes > 0 and last is not None:
        behind_passes.append(last)
