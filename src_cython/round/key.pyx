# What is locked beside plain keys, which are bytes: a lock that readers share, and the
# slots of a semaphore.

# --- shared ---------------------------------------------------------------------------
# A lock that its readers share. Pure.
#
# Each has its own token and ttl in the lock's key (_options/locks.lua). In here they
# differ by the kind of their round, for which the table of commands has other scripts;
# and those that wait have a queue of their own, as if they were another process: its
# name at the gate has an "r" behind it, so it has another channel, and their queue's
# name here a mark in front.

cdef bytes AS_READER = b"r"                       # no name of a process ends so
cdef bytes READERS = b"fastredlock:readers:"      # no resource has such a name


@cython.final
cdef class Shared:
    """A lock that is shared, in the place of a key."""

    cdef readonly bytes name

    def __init__(self, bytes resource not None):
        self.name = resource

    def __eq__(self, other):
        return type(other) is Shared and self.name == (<Shared>other).name

    def __hash__(self):
        return hash(self.name)


@cython.final
cdef class SharedOf:
    """Make a Shared of a resource, whose key `encode` returns."""

    cdef readonly object encode

    def __init__(self, encode not None):
        self.encode = encode

    def __call__(self, resource):
        """Return the Shared of the resource."""
        return Shared(self.encode(resource))


cdef inline bytes round_entry(Round self):
    # The name of the queue in this process in which it waits.
    return READERS + self.resource if self.kind == KIND_SHARED else round_queue(self)


# --- slots ----------------------------------------------------------------------------
# The slots of a semaphore: k keys, each an ordinary lock. Pure.
#
# At most one process holds a slot, so at most k hold the semaphore: nothing is counted.
# (Three masters that count for themselves, and k = 2, can give two votes to each of
# three clients.) What is known here of a slot is a hint where to try, and never a vote.
#
# The callers of all slots wait in one queue, that of the semaphore's name: the resource
# and "#". A slot's key is that name and its number.

cdef enum:
    PERMITS_MOST = 1024
    SLOT_SEEN_NS = 250_000_000       # a slot that was seen taken counts so


@cython.final
cdef class Permits:
    """A semaphore of so many permits, in the place of a key."""

    cdef readonly bytes name
    cdef readonly int count

    def __init__(self, bytes resource not None, int count):
        slots_check_permits(count)
        self.name = resource + b"#"
        self.count = count


cdef int slots_check_permits(int count) except -1:
    if not 1 <= count <= PERMITS_MOST:
        raise ValueError("permits out of range")


@cython.final
cdef class PermitsOf:
    """Make Permits of a resource, whose key `encode` returns."""

    cdef readonly object encode
    cdef readonly int count

    def __init__(self, encode not None, int count):
        slots_check_permits(count)
        self.encode = encode
        self.count = count

    def __call__(self, resource):
        """Return the Permits of the resource."""
        return Permits(self.encode(resource), self.count)


@cython.final
@cython.internal
cdef class Slots:
    cdef list free               # were released here, or seen free; the last one first
    cdef dict taken_ns           # slot: until when it counts as taken


cdef int slots_choose(Slots self, int count, int start, int64_t now_ns) except -2:
    # The most likely to be free; -1: each counts as taken.
    cdef int i, slot
    for slot in reversed(self.free):
        if slot < count and not wait_queues_are_until(self.taken_ns, slot, now_ns):
            return slot
    for i in range(count):
        slot = (start + i) % count
        if not wait_queues_are_until(self.taken_ns, slot, now_ns):
            return slot
    return -1


cdef int slots_take(Slots self, int slot, int64_t until_ns) except -1:
    self.taken_ns[slot] = until_ns
    self.free = [each for each in self.free if <int>each != slot]


cdef int slots_learn(Slots self, Round look, int64_t now_ns) except -1:
    # Learn what the masters have seen: a slot that a quorum could grant is worth a try,
    # whatever was known before. That which fewest have comes first, the last in `free`.
    cdef int slot, i
    cdef uint64_t taken
    cdef list free = []
    for slot in range(look.permits):
        taken = 0
        for i in range(look.electorate.count):
            reply = look.details[i]
            if type(reply) is bytes and slot < len(<bytes>reply) and (
                (<bytes>reply)[slot] == c"1"
            ):
                taken |= set_of(i)
        if electorate_wins(look.electorate, ~taken):
            self.taken_ns.pop(slot, None)
            free.append((-bit_count(taken), slot))
        else:
            self.taken_ns[slot] = now_ns + SLOT_SEEN_NS
    self.free = [slot for slot in self.free if slot >= look.permits]
    self.free += [slot for _, slot in sorted(free)]


cdef bytes round_queue(Round self):
    # The name of its queue: of a slot that of its semaphore.
    return self.resource if self.permits == 0 else slots_name(self.resource)


cdef inline int round_slot(Round self) noexcept:
    return slot_of_key(self.resource) if self.permits else -1


cdef inline bint round_wants_slot(Round self) noexcept:
    return self.permits != 0 and self.operation_code == OPERATION_ACQUIRE and (
        slot_of_key(self.resource) < 0
    )


cdef inline bint round_may_have_slot(Round self, int slot) noexcept:
    # Return whether its caller asks for a semaphore of so many; 0: for a lock.
    return slot < self.permits and (slot < 0) == (self.permits == 0)


cdef bytes slot_key(bytes name, int slot):
    return name + decimal_bytes(slot)


cdef bytes slots_name(bytes key):
    # Return the name of the semaphore whose slot has this key.
    return key[:key.rfind(b"#") + 1]


cdef int slot_of_key(bytes key) noexcept:
    # The number behind the last "#", of four digits at the most; -1: none.
    cdef const char *text = PyBytes_AS_STRING(key)
    cdef Py_ssize_t at = PyBytes_GET_SIZE(key) - 1
    cdef int slot = 0, unit = 1
    while at > 0 and unit < 10_000 and c"0" <= text[at] <= c"9":
        slot += unit * (text[at] - c"0")
        unit *= 10
        at -= 1
    if at < 0 or text[at] != c"#" or unit == 1:
        return -1
    return slot if slot < PERMITS_MOST else -1
