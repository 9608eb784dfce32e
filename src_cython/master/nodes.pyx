# The nodes of a cluster (routes) as connections: made when a map or a reply names them,
# led to another address when theirs has left the map; and how a map is taken.

cdef enum:
    MAP_AGAIN_NS = 100_000_000         # between two maps
    FORMER_AGAIN_NS = 1_000_000_000    # ...where the cluster was built anew

cdef str NO_NODE_YET = "no node of the cluster is known to have its hash slot"


cdef int nodes_on_map(Connection self, Handshake handshake, int64_t now_ns) except -1:
    # The map is in, and this connection has no other use. Where one cannot be taken the
    # next place is asked, and of a name the next address.
    cdef Routes routes = self.master.routes
    cdef object reply = handshake.cluster_map
    failure = routes_take_map(routes, reply, self.host, handshake.node_id)
    if (failure == OTHER_CLUSTER or failure == NOT_LISTED) and (
        nodes_are_rebuilt(self, handshake.node_id, now_ns)
    ):
        failure = routes_take_map(routes, reply, self.host, handshake.node_id)
    if failure is not None:
        connection_note_bad_address(self)
        nodes_warn_of_place(self, failure)
        return connection_on_lost(self, failure, now_ns)
    report_back(self.report, "its map is read", now_ns)
    report_for_review(self.report)
    connection_rest(
        self, NO_NODE_YET, now_ns + (FORMER_AGAIN_NS if routes.former else MAP_AGAIN_NS)
    )
    if routes.turn + 1 < <Py_ssize_t>len(routes_places(routes)):
        connection_retry_now(self, now_ns)      # of the first ones, each may know more


cdef int nodes_warn_of_place(Connection self, str failure) except -1:
    # Callers know the cluster by another address than that of this node.
    if failure == OTHER_CLUSTER:
        place = f"{self.host.decode('utf-8', 'replace')}:{self.port}"
        report_warned(self.report, [f"the server at {place} {failure}: not asked"])


cdef bint nodes_are_rebuilt(Connection self, bytes node_id, int64_t now_ns) except -1:
    # Return whether the map of another cluster is taken after all: for longer than a
    # quarantine each place was asked, and none has one that is. A stranger's only if no
    # node has answered at all; but one that is READY may have gone without a word.
    cdef Routes routes = self.master.routes
    cdef Connection node
    cdef int64_t span_ns = 0, heard_ns = 0
    for node in self.master.nodes:
        if node is None:
            continue
        span_ns = max(span_ns, node.restart_guard.window_ns)
        heard_ns = max(heard_ns, node.heard_ns)
        if node.state_code == MASTER_READY:
            heard_ns = now_ns
            connection_ask_replication(node, now_ns)
    span_ns += self.master.max_ttl_ns + NS_PER_S
    if not routes_are_strange_since(routes, node_id, span_ns, heard_ns, now_ns):
        return False
    routes_forget(routes, now_ns + span_ns)
    report_warned(self.report, [
        "has other nodes than before: their map is taken, after a quarantine of "
        f"{span_ns / 1e9:g} s"
    ])
    return True


cdef Connection nodes_at(Master self, int at, int64_t now_ns):
    # The connection to this node.
    cdef Connection node
    cdef tuple address = self.routes.addresses[at]
    while len(self.nodes) <= at:
        self.nodes.append(None)
    node = <Connection>self.nodes[at]
    if node is None:
        node = Connection(
            self, at, self.connection.jitter + <uint64_t>at * 0x9E3779B9
        )
        connection_lead_to(node, address)
        self.nodes[at] = node
    elif (node.host, node.port) != address or (
        node.node_id is not None and node.node_id != self.routes.ids[at]
        and self.routes.ids[at] is not None
    ):
        connection_lead_elsewhere(node, address, now_ns)
    restart_guard_hold_until(
        node.restart_guard, self.routes.until_ns,
        "its cluster was built anew: in quarantine",
    )
    return node


cdef int nodes_follow_map(Master self, int64_t now_ns) except -1:
    # There is another map, or it is seen to be old: nodes are made, the releases that
    # are deferred go to where their keys are, and what has no use is closed.
    cdef Routes routes = self.routes
    cdef Connection node
    cdef DeferredRelease each
    cdef list deferred = deferred_take(self.connection.in_flight)
    cdef int at
    if routes.known:      # the same for clients with other seeds: see gate_rank
        smallest = <bytes>sorted(routes.known)[0]
        server = "cluster", 0, smallest.decode("latin-1")
        self.rank = server, self.settings.db, self.vote
    for at in range(<int>len(routes.addresses)):
        if routes_needs(routes, at):
            nodes_at(self, at, now_ns)
    for node in self.nodes:
        if node is not None:
            deferred += deferred_take(node.in_flight)
    for each in deferred:
        node = master_connection(self, each.release.resource)
        deferred_add(node.in_flight, each.release, each.key_until_ns, each.is_second)
    for node in self.nodes:
        if node is None:
            continue
        if node.state_code == MASTER_READY:
            if node.in_flight.deferred:
                connection_send_deferred(node, now_ns)
            elif not routes_needs(routes, node.node) and not node.in_flight.count:
                connection_on_lost(node, "has no hash slot any more", now_ns)
        if not routes_needs(routes, node.node):
            report_no_outage(node.report)      # nobody needs it


cdef bint nodes_are_opening(Master self) noexcept:
    # Return whether any connection of it is on its way.
    for node in self.nodes:
        if node is not None and connection_is_opening(<Connection>node):
            return True
    return connection_is_opening(self.connection)


cdef Connection nodes_worst(Master self):
    # Return what is shown of a master: of a cluster the node that is worst off.
    cdef Connection node, shown = self.connection
    for node in self.nodes:
        if node is None or not routes_needs(self.routes, node.node):
            continue
        if shown is self.connection or node.state_code != MASTER_READY or (
            shown.state_code == MASTER_READY
            and node.restart_guard.until_ns > shown.restart_guard.until_ns
        ):
            shown = node
    return shown


cdef bint nodes_are_told(Connection self, bytes push) except -1:
    # A message reaches us by each node of a cluster where we are subscribed: that of
    # the node which has the key counts. ("~", "?" and RECALL are no part of its name.)
    key = push.removeprefix(RECALL)
    if key.startswith((b"~", b"?")):
        key = key[1:]
    return master_connection(self.master, key) is self
