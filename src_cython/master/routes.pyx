# Redis Cluster: which node has a key, by the cluster's map and by what nodes reply.
#
# Theory of operation. A cluster is one master of a round, with one vote. Behind it are
# its nodes, each with a connection (nodes); the command of a round goes to the one that
# has the hash slot of its key. The master's own connection never takes a command: it
# reads the map (CLUSTER SLOTS) from one of the addresses, another each time, and is
# closed. The map is read before the first round, and again where it
# is seen to be old: a node replies MOVED or CLUSTERDOWN, or its connection ends.
#
#   MOVED slot host:port   the slot is there from now on: so the command goes there,
#                          in the same round, HOPS_MOST times at the most
#   ASK slot host:port     this key alone may be there, in the middle of a move: there
#                          go the extension and the release of a lease, behind ASKING.
#                          All else is a failed vote: a key that is set there is lost
#                          where the move is given up
#   TRYAGAIN, CLUSTERDOWN  a failed vote
#
# A node keeps its number while it is in the map. Pure: replies in, numbers out.
#
# A cluster is known by the ids of its nodes, not by their addresses: another one may
# have one of these by now. A map is taken from a node of the last map, if most of the
# nodes of that are in it, or have most of the slots. Slots that it leaves out stay as
# they are: a node that has lost its nodes.conf has no map. A node that is in no map yet
# (MOVED has named it), or whose id is not told, is one if its own map would be taken.

cdef enum:
    HASH_SLOTS = 16384
    NO_NODE = 255
    HOPS_MOST = 5
    TAGS_TRIED = 1 << 20
    BRACE = 0x7B                 # not as c"...": Cython indents its C by them
    END_BRACE = 0x7D

cdef str NOT_LISTED = "is in no map of the other nodes, or not yet"
cdef uint16_t crc_of_byte[256]


cdef int routes_fill_crc() except -1:
    cdef int byte, _bit
    cdef uint16_t crc
    for byte in range(256):
        crc = <uint16_t>(byte << 8)
        for _bit in range(8):
            crc = <uint16_t>((crc << 1) ^ (0x1021 if crc & 0x8000 else 0))
        crc_of_byte[byte] = crc


routes_fill_crc()


cdef int routes_tag_of(bytes key, const char **text, size_t *size) noexcept:
    # Give what is hashed: the text between the first braces (1), else all of it (0).
    cdef const char *first
    cdef const char *last
    text[0] = PyBytes_AS_STRING(key)
    size[0] = <size_t>PyBytes_GET_SIZE(key)
    first = <const char *>memchr(text[0], BRACE, size[0])
    if first == NULL:
        return 0
    last = <const char *>memchr(first, END_BRACE, size[0] - <size_t>(first - text[0]))
    if last == NULL or last == first + 1:
        return 0
    text[0] = first + 1
    size[0] = <size_t>(last - first - 1)
    return 1


cdef int routes_slot(bytes key) noexcept:
    # CRC16 of the hash tag: https://redis.io/docs/latest/operate/oss_and_stack/
    # reference/cluster-spec/, "Key distribution model".
    cdef const char *text
    cdef size_t size, i
    cdef uint16_t crc = 0
    routes_tag_of(key, &text, &size)
    for i in range(size):
        crc = <uint16_t>(crc << 8) ^ crc_of_byte[(crc >> 8) ^ <uint8_t>text[i]]
    return crc % HASH_SLOTS


cdef bytes routes_tagged(bytes name):
    # Put a tag into a name of our own, as the scripts do (_options/scripts).
    cdef const char *text
    cdef size_t size
    return name if routes_tag_of(name, &text, &size) else b"{" + name + b"}"


cdef str routes_refusal(object name):
    # Return why a cluster cannot have this key, or these keys together, or None. Names
    # of our own have the key between braces, to be in its slot (_options/scripts).
    cdef const char *text
    cdef size_t size
    cdef tuple keys = name if type(name) is tuple else (name,)
    for key in keys:
        if routes_slot(<bytes>key) != routes_slot(<bytes>keys[0]):
            return (
                "the resources are in several hash slots of a cluster: put a part that "
                "all have into braces, as in {order}:1 and {order}:2; or acquire_each()"
            )
        if not routes_tag_of(<bytes>key, &text, &size) and (
            memchr(text, END_BRACE, size) != NULL
        ):
            return (
                "in a cluster a name with a closing brace needs a whole tag before it, "
                "as in {order}:1"
            )
    return None


cdef bytes routes_name(bytes name):
    # A semaphore (`gpu#`) or a slot (`gpu#0`) gets a tag, whoever asks, because all its
    # slots are looked at together. Other names stay as they are.
    cdef const char *text
    cdef size_t size
    cdef Py_ssize_t at = name.rfind(b"#")
    if at < 1 or routes_tag_of(name, &text, &size) or (
        at < PyBytes_GET_SIZE(name) - 1 and slot_of_key(name) < 0
    ):
        return name
    return b"{" + name[:at] + b"}" + name[at:]


@cython.final
cdef class Routes:
    """The nodes of one cluster, and which of them has which hash slot."""

    cdef list seeds              # (host, port) as configured
    cdef Py_ssize_t turn         # of these and the others: which was asked last
    cdef readonly list addresses     # (host, port) of its nodes, by number
    cdef list ids                # theirs by number; None: not known
    cdef readonly set known      # the ids of all nodes of the last map, replicas too
    cdef set former              # those of the cluster before, where it was built anew
    cdef int64_t strange_ns      # since then no map was one of this cluster; or 0...
    cdef Py_ssize_t strange_turn     # ...and which place was asked then
    cdef int64_t until_ns        # no node votes before: the cluster was built anew
    cdef readonly int most       # so many of them
    cdef public bint is_stale    # the map is to be read
    cdef uint64_t asked          # those that ASK has named since the last map
    cdef uint8_t owner[HASH_SLOTS]

    def __init__(self, seeds, int most=MAX_MASTERS - 1):
        self.seeds = list(seeds)
        self.addresses = []
        self.ids = []
        self.known = set()
        self.former = set()
        self.turn = -1
        self.most = most
        self.is_stale = True
        memset(self.owner, NO_NODE, HASH_SLOTS)

    def take_map(self, reply, bytes host not None, bytes node_id=None):
        """Take a reply of this node to CLUSTER SLOTS; return its fault, or None."""
        return routes_take_map(self, reply, host, node_id)

    def on_redirect(self, str error not None, bytes host not None):
        """Take an error of this host; return the address that it names, or None."""
        cdef int at = routes_on_redirect(self, error, host)
        return None if at < 0 else self.addresses[at]

    def address_of(self, bytes key not None):
        """Return the address of the node that has this key, or None."""
        cdef int at = self.owner[routes_slot(key)]
        return None if at == NO_NODE else self.addresses[at]

    def tag_of(self, tuple address not None):
        """Return the braces of a key that this node has."""
        return routes_tag(self, <int>self.addresses.index(address))


cdef list routes_places(Routes self):
    # Return where to ask for the map. Its nodes come behind the configured ones, which
    # may all be replaced some day; but if it was built anew, only those can lead back.
    return self.seeds if self.former else self.seeds + self.addresses


cdef tuple routes_next_place(Routes self):
    cdef list places = routes_places(self)
    self.turn += 1
    return places[self.turn % <Py_ssize_t>len(places)]


cdef bint routes_needs(Routes self, int at) noexcept:
    # Return whether a connection has a use: that of the map, -1, or of a node.
    if at < 0:
        return self.is_stale
    return (self.asked >> at) & 1 or memchr(self.owner, at, HASH_SLOTS) != NULL


cdef bytes routes_tag(Routes self, int at):
    # The braces of a key that this node has: of the first number whose slot it has, so
    # mostly the same for all clients.
    cdef int n
    for n in range(TAGS_TRIED if memchr(self.owner, at, HASH_SLOTS) != NULL else 0):
        tag = decimal_bytes(n)
        if self.owner[routes_slot(tag)] == at:
            return b"{" + tag + b"}"
    return b"{0}"


cdef str routes_read_map(Routes self, object reply, bytes host, list parts, set ids):
    # [[first slot, last, [host, port, id, metadata] of the primary, ...replicas], ...];
    # a host that is left out is the one that was asked; an entry without a port is of
    # a node whose address its cluster has lost. Fills both; returns the fault, or None.
    if type(reply) is not list:
        return "has no map (CLUSTER SLOTS)"
    for part in reply:
        if type(part) is not list or len(part) < 3 or type(part[2]) is not list or (
            len(part[2]) < 2
        ):
            return "has an odd map (CLUSTER SLOTS)"
        first, last, (name, port) = part[0], part[1], part[2][:2]
        if type(name) is str:
            name = (<str>name).encode()
        if type(first) is not int or type(last) is not int or type(port) is not int or (
            not 0 <= first <= last < HASH_SLOTS or not 0 <= port < 65536
            or not (name is None or type(name) is bytes)
        ):
            return "has an odd map (CLUSTER SLOTS)"
        if name == b"?":      # it has no name (cluster-preferred-endpoint-type)
            name = routes_ip(part[2])
        if port:
            parts.append((first, last, (name or host, port), routes_id(part[2])))
        ids.update([routes_id(node) for node in part[2:]])
    ids.discard(None)
    if not parts:
        return "knows no hash slot of a cluster (CLUSTER SLOTS)"
    return None if routes_has(self, parts, ids) else OTHER_CLUSTER


cdef bytes routes_id(object node):
    if type(node) is list and len(node) > 2 and type(node[2]) is bytes:
        return node[2]


cdef bytes routes_ip(list node):
    cdef Py_ssize_t i
    metadata = node[3] if len(node) > 3 else None
    ip = (<dict>metadata).get(b"ip") if type(metadata) is dict else None
    if type(metadata) is list:      # of RESP2
        for i in range(len(<list>metadata) - 1):
            if (<list>metadata)[i] == b"ip":
                ip = (<list>metadata)[i + 1]
    return ip if type(ip) is bytes else None


cdef str routes_take_map(Routes self, object reply, bytes host, bytes node_id):
    cdef list parts = [], places
    cdef set ids = set()
    cdef int at, missing = HASH_SLOTS
    fault = routes_read_map(self, reply, host, parts, ids)
    if fault is not None:
        return fault
    if node_id is not None and self.known and node_id not in self.known:
        return NOT_LISTED
    places = [*{place: None for _, _, place, _ in parts}]
    if len(places) > self.most:
        return f"has over {self.most} primaries: no more can be taken"
    for first, last, _, _ in parts:      # so that numbers are free again
        memset(&self.owner[<int>first], NO_NODE, <size_t>(<int>last - <int>first + 1))
    for first, last, place, its_id in parts:
        at = routes_number(self, place, places)
        memset(&self.owner[<int>first], at, <size_t>(<int>last - <int>first + 1))
        missing -= <int>last - <int>first + 1
        if at >= 0:
            self.ids[at] = None if node_id is None else its_id
    self.known = ids
    for at in range(<int>len(self.ids)):
        if self.ids[at] is not None and routes_needs(self, at):
            self.known.add(self.ids[at])
    # Where no node has some slot it is read again: one may have it soon, or another
    # seed may know more than this one, which may have been added just now.
    self.former -= ids
    self.is_stale = missing > 0 or len(self.former) > 0
    self.asked = 0
    self.strange_ns = 0
    return None


cdef bint routes_has(Routes self, list parts, set ids) except -1:
    # Return whether a map is one of this cluster.
    cdef int slot, had = 0, kept = 0
    if not self.known or 2 * len(self.known & ids) > len(self.known):
        return True
    for slot in range(HASH_SLOTS):
        had += self.owner[slot] != NO_NODE
    for first, last, _, node_id in parts:
        if node_id in self.known:
            for slot in range(<int>first, <int>last + 1):
                kept += self.owner[slot] != NO_NODE
    return 2 * kept > had


cdef str routes_fault_of_node(
    Routes self, int at, bytes node_id, object reply, bytes host
):
    # Return the fault of a node of unknown id: its own map has to be of this cluster.
    # The slots that it has there are its own: MOVED named one of them, which makes
    # another tag.
    cdef list parts = []
    fault = routes_read_map(self, reply, host, parts, set())
    if fault is None:
        self.ids[at] = node_id
        for first, last, _, its_id in parts:
            if its_id is not None and its_id == node_id:
                memset(
                    &self.owner[<int>first], at, <size_t>(<int>last - <int>first + 1)
                )
    return fault


cdef int routes_forget(Routes self, int64_t until_ns) except -1:
    # The cluster was built anew: the next map is taken whatever is in it.
    memset(self.owner, NO_NODE, HASH_SLOTS)
    self.former |= self.known
    self.known = set()
    self.ids = [None for _ in self.ids]
    self.until_ns = until_ns


cdef void routes_doubt(Routes self) noexcept:
    # If the cluster was built anew, its map is read before a node is asked.
    if self.former:
        memset(self.owner, NO_NODE, HASH_SLOTS)


cdef bint routes_are_strange_since(
    Routes self, bytes node_id, int64_t span_ns, int64_t heard_ns, int64_t now_ns
) except -1:
    # Return whether each place was asked, for longer than this, and none had a map of
    # this cluster; `heard_ns` is when one of its nodes has answered last. Or this node
    # is of the cluster before: its addresses are led back to it.
    if self.strange_ns == 0:
        self.strange_ns, self.strange_turn = now_ns, self.turn
    return node_id in self.former or not (now_ns - self.strange_ns <= span_ns or (
        self.turn < self.strange_turn + <Py_ssize_t>len(routes_places(self))
        or node_id not in self.known and now_ns - heard_ns <= span_ns
    ))


cdef int routes_number(Routes self, tuple place, list places) except -2:
    # Return a node's number; a new one gets one that no place has. -1: there is none.
    cdef int at
    if place in self.addresses:
        return self.addresses.index(place)
    if len(self.addresses) < self.most:
        self.addresses.append(place)
        self.ids.append(None)
        return <int>len(self.addresses) - 1
    for at in range(self.most):
        if self.addresses[at] not in places and not routes_needs(self, at):
            self.addresses[at] = place
            self.ids[at] = None
            return at
    return -1


cdef bint routes_is_redirect(str error) except -1:
    # Return whether the error is about where a key is; the last of these is a script's.
    return error.startswith(("MOVED ", "ASK ", "TRYAGAIN", "CLUSTERDOWN")) or (
        "non local key" in error
    )


cdef int routes_on_redirect(Routes self, str error, bytes host) except -2:
    # The number of the node that MOVED or ASK names; -1: none.
    cdef list words = error.split(" ")
    cdef int at
    if words[0] == "MOVED" or words[0] == "CLUSTERDOWN":
        self.is_stale = True
    if len(words) != 3 or words[0] not in ("MOVED", "ASK"):
        return -1
    name, _, port = (<str>words[2]).rpartition(":")
    slot = words[1]
    if not (slot.isdecimal() and port.isdecimal() and len(slot) < 6 > len(port)) or (
        not 0 <= int(slot) < HASH_SLOTS or not 0 < int(port) < 65536 or name == "?"
    ):
        return -1
    at = routes_number(self, (name.encode() or host, int(port)), [])
    if at >= 0 and words[0] == "MOVED":
        self.owner[<int>int(slot)] = at
    elif at >= 0:
        self.asked |= <uint64_t>1 << at
    return at
