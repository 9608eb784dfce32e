# The lists of masters that are in use. Pure: replies in, texts out.
#
# Two clients exclude each other if their lists are equal, or neighbours: with one whole
# list in common (electorate). No server can tell that. So a client adds its lists to
# the name of its connections (CLIENT SETNAME), and the last step of a handshake reads
# the names of all clients (CLIENT LIST). A name is set before the others are read: so
# of two clients that a server has, the later one sees the earlier one.
#
#   fastredlock@web-7:4711|5ba93c|00e1d72f90a6b3c4|60000|1f09ab77d3c2>1f09ab90aa01
#   its name    owner     |      the client       |     six digits for each master,
#                         key_prefix              |     sorted; of two lists the old
#                                                 |     one > the new one
#                                                 max_ttl in ms, 0: none
#
# The owner, of whom a token says the same, is for people: who waits (_cli/waiting.py).
#
# A master is its address as it is written: a name and its address are two masters, for
# they may be (and the order of those who wait depends on it, too: gate_rank).
#
# A server makes the list of 1,000 clients in 1 ms or 2, in which it does nothing else.
# So where there are many, about a hundred of them ask, whoever connects: each one with
# a number that is divided by a hundredth of their count. The others see what these see.

cdef bytes IN_NAMES = bytes([
    each if c"!" <= each <= c"~" and each != c"|" else c"_" for each in range(256)
])

cdef enum:
    DIGITS_OF_MASTER = 6
    ASKING_CLIENTS = 100

cdef str LISTS_REMEDY = (
    "both may hold one lock; change a list by way of both (docs/changing-masters.md), "
    "and give locks that have nothing in common a key_prefix"
)


@cython.final
cdef class Client:
    """A client of a server, as its line in the reply to CLIENT LIST says."""

    cdef readonly str address, name
    cdef readonly str db, age_s      # as they are written
    cdef readonly str keys           # the next are None if its name does not say them
    cdef readonly str identity       # the same on all masters
    cdef readonly object max_ttl_ms
    cdef readonly tuple lists        # one frozenset, or the old one and the new one

    def __init__(self, str line not None):
        words = dict([word.partition("=")[::2] for word in line.split(" ")])
        self.address, self.name = words.get("addr", ""), words.get("name", "")
        self.db, self.age_s = words.get("db", ""), words.get("age", "")
        parts = self.name.rsplit("|", 4)
        if len(parts) != 5 or not parts[3].isdecimal() or len(parts[3]) > 20:
            return
        lists = [
            frozenset([
                each[i:i + DIGITS_OF_MASTER]
                for i in range(0, len(each), DIGITS_OF_MASTER)
            ])
            for each in parts[4].split(">")
        ]
        if not all(lists) or len(lists) > 2:
            return
        self.name, self.keys, self.identity = parts[:3]
        self.max_ttl_ms, self.lists = int(parts[3]), tuple(lists)


def clients_in(reply, str but=" | "):
    """Return a Client for each in a reply to CLIENT LIST that says its lists, `but`
    for lines that have this text: of a thousand alike, each would take 5 us."""
    if type(reply) is not bytes:
        return []
    lines = (<bytes>reply).decode("utf-8", "replace").splitlines()
    found = [Client(line) for line in lines if "|" in line and but not in line]
    return [client for client in found if (<Client>client).lists is not None]


def are_neighbours(tuple lists not None, tuple others not None):
    """Return whether clients with these lists exclude each other."""
    return not frozenset(lists).isdisjoint(others)


def lists_text(tuple lists not None, dict names not None):
    """Name the masters of one list, or of two, by their `names`."""
    texts = []
    for each in lists:
        known = sorted([names[master] for master in each if master in names])
        if len(known) < len(each):
            known.append(f"{len(each) - len(known)} others")
        texts.append(", ".join(known))
    return f"({' > '.join(texts)})"


cdef str ttl_text(int64_t max_ttl_ms):
    return f"max_ttl={max_ttl_ms / 1000:g} s" if max_ttl_ms else "no max_ttl"


@cython.final
cdef class Lists:
    """The lists of this client: what it says of them, and which others it has met."""

    cdef readonly str keys           # a hash of the key_prefix
    cdef readonly tuple lists        # as those of a Client
    cdef readonly dict names         # of a master: by its digits
    cdef int64_t max_ttl_ms
    cdef readonly bint is_strict
    cdef TokenSource tokens          # of this client, which name its owner; or None

    def __init__(
        self, str keys not None, tuple lists not None, dict names not None,
        int64_t max_ttl_ms, bint is_strict, TokenSource tokens=None,
    ):
        self.keys = keys
        self.lists = lists
        self.names = names
        self.max_ttl_ms = max_ttl_ms
        self.is_strict = is_strict
        self.tokens = tokens

    def told(self, bytes identity not None):
        """Return what is added to the name of a connection."""
        told = f"|{self.keys}|{identity.decode()}{self._of_all()}".encode()
        if self.tokens is None:
            return told
        return tokens_owner(self.tokens).translate(IN_NAMES) + told

    cdef str _of_all(self):
        # The end of the name, of all clients with these lists.
        lists = ">".join(["".join(sorted(each)) for each in self.lists])
        return f"|{self.max_ttl_ms}|{lists}"

    def is_to_ask(self, int64_t client_id, str client_count):
        """Return whether the client with this number asks; `client_count`: of INFO."""
        cdef int64_t count = int(client_count) if client_count.isdecimal() else 0
        return self.is_strict or client_id % max(count // ASKING_CLIENTS, 1) == 0

    def met(self, reply, str db not None):
        """Return a text on a client whose lists are no neighbours, and one on another
        max_ttl; None: there is none. Of several the same one, whoever is first."""
        cdef Client client
        lists, ttls = set(), set()
        for client in clients_in(reply, f"{self._of_all()} "):
            if client.keys == self.keys and client.db == db:
                lists.add(client.lists)
                ttls.add(client.max_ttl_ms)
        strange = min([
            lists_text(each, self.names) for each in lists
            if not are_neighbours(each, self.lists)
        ], default=None)
        other = max(ttls - {self.max_ttl_ms}, default=None)
        if strange is not None:
            strange = (
                f"another client has the masters {strange}, this one "
                f"{lists_text(self.lists, self.names)}: {LISTS_REMEDY}"
            )
        if other is not None:
            other = (
                f"another client has {ttl_text(other)}, this one "
                f"{ttl_text(self.max_ttl_ms)}: after a restart a lock may be given "
                "while it is held; use one max_ttl"
            )
        return strange, other
