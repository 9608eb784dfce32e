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
    # For numbers of grants alone (engine/fences): no decision takes it.
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
    cdef timespec duration
    duration.tv_sec = duration_ns // NS_PER_S
    duration.tv_nsec = duration_ns % NS_PER_S
    with nogil:
        nanosleep(&duration, NULL)


cdef enum:
    TOKEN_BYTES = 20

cdef const char *HEX = b"0123456789abcdef"


def draw_token():
    """Draw 20 bytes from the kernel, in hex: 40 bytes that no one can guess or repeat.
    """
    cdef uint8_t drawn[TOKEN_BYTES]
    draw(drawn, TOKEN_BYTES)
    return hex_of(drawn)


cdef int draw(void *drawn, int size) except -1:
    # getrandom(2): up to 256 bytes are never cut short by a signal once the pool is up.
    while random_draw(drawn, size) != size:
        if errno != EINTR:
            raise OSError(errno, "random_draw")
        PyErr_CheckSignals()
    return 0


cdef bytes hex_of(const uint8_t *drawn):
    cdef char text[2 * TOKEN_BYTES]
    cdef int i
    for i in range(TOKEN_BYTES):
        text[2 * i] = HEX[drawn[i] >> 4]
        text[2 * i + 1] = HEX[drawn[i] & 15]
    return PyBytes_FromStringAndSize(text, 2 * TOKEN_BYTES)


# Counts the forks between the first process and this one. An engine remembers the
# generation it was made or reset in: a difference means that its sockets are the
# parent's. Cheaper than getpid(2) in every round, and it sees a fork made by C code.
cdef uint32_t current_generation = 0


cdef void generation_on_fork() noexcept nogil:
    global current_generation
    current_generation += 1


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
