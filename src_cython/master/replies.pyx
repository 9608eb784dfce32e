# What a master says: bytes are cut into replies, and each of them is the vote of a
# round, a part of one that has a number, an answer of a queue, or was sent unasked.

# --- votes ----------------------------------------------------------------------------
# A reply that becomes the vote of a round, and what is learnt from it.

cdef int64_t REFUSED_NS = 10_000_000_000


cdef int connection_on_definite(
    Connection self, InFlightEntry entry, Round round, int vote, object detail,
    int64_t now_ns
) except -1:
    # A failure in an open round is counted when that ends (engine_on_closed).
    cdef Master master = self.master
    if operation_is(round.operation_code, OPERATION_HAS_VOTES) and (
        vote != VOTE_FAILED or round.is_finished
    ):
        master.votes[vote] += 1
    if vote != VOTE_FAILED:
        if (
            round.operation_code == OPERATION_ACQUIRE
            or round.operation_code == OPERATION_PING
        ) and (self.report.away_from_ns or self.report.refused_until_ns):
            report_took_lock(self.report, now_ns)
        # Note how long the answer took, or by how much it is late: if the round waited
        # for it in vain, until another is in time. Other late replies were not read.
        if now_ns <= round.deadline_ns:
            master.late_us = 0
        if round.verdict_code != VERDICT_OPEN:
            master.counters.late_replies += 1
            master.late_replies += 1
            if set_has(round.silent, self.vote):
                master.late_us = (now_ns - round.opened_ns) // 1000
        elif operation_is(round.operation_code, OPERATION_CHANGES_KEY):
            master.samples[master.sample_count & (SAMPLES - 1)] = <uint32_t>min(
                (now_ns - entry.sent_ns) // 1000, <int64_t>0xFFFFFFFF
            )
            master.sample_count += 1
    round_on_vote(round, self.vote, vote, detail, True, now_ns)
    if entry.form == FORM_FENCE or entry.is_second and (
        operation_is(round.operation_code, OPERATION_GIVES_TTL)
    ):
        # The first of two commands has been executed, or may still be: an answer to the
        # second, an error too, proves nothing about it.
        round_on_sent(round, self.vote)


cdef int connection_end_by_reply(
    Connection self, Round round, str text, str reason, int64_t key_until_ns,
    bint is_second, int64_t now_ns,
) except -1:
    # The connection ends by the reply to this round: its release is deferred.
    round_on_vote(round, self.vote, VOTE_FAILED, text, False, now_ns)
    if round.operation_code == OPERATION_RELEASE:
        deferred_add(self.in_flight, round, key_until_ns, is_second)
    return connection_on_lost(self, reason, now_ns)


cdef str odd_text(object reply):
    # No server answers our command in this way: it is the reply to something else, and
    # each reply behind it would be read as the one before.
    return f"sent a reply that fits no question: {reply_text(reply)}"


# --- pushes ---------------------------------------------------------------------------
# What a server reports without being asked: it is this process's turn for a resource.
#
# Each process has one channel, on which every gate it waits at notifies it. A push is
# no reply: it takes no entry in flight, and comes at any place between two replies. The
# one exception is the answer to SUBSCRIBE itself, which RESP3 gives as a push; refused,
# it is an error as any other.


cdef enum:
    QUEUES_MOST = 32         # that are asked for together

cdef bytes CHANNEL = b"fastredlock:waiter:"      # behind the key_prefix
cdef bytes QUEUE = b"fastredlock:queue:"
cdef str QUEUE_NAMES = "~fastredlock:* &fastredlock:*"


cdef bint connection_is_subscribed(Connection self, bytes waiter) noexcept:
    return self.reads if waiter.endswith(AS_READER) else self.is_subscribed


cdef int connection_subscribe(Connection self, bytes waiter, int64_t now_ns) except -1:
    # Subscribe once for each connection, when a caller first waits there.
    cdef bint reads = waiter.endswith(AS_READER)
    if connection_is_subscribed(self, waiter):
        return 0
    words = (b"SUBSCRIBE", self.master.scripts.name_prefix + CHANNEL + waiter)
    self.reads |= reads
    self.is_subscribed |= not reads
    return connection_ask(self, ENTRY_SUBSCRIBE, words, now_ns)


cdef bytes connection_turn_of(object channel, bytes text):
    # Return whose turn it is; readers have a channel and a queue of their own.
    if type(channel) is not bytes or not (<bytes>channel).endswith(AS_READER):
        return text
    if text[:1] == b"~" or text[:1] == b"?":
        return text[:1] + READERS + text[1:]
    return READERS + text


cdef int connection_on_push(Connection self, object push, int64_t now_ns) except -1:
    cdef InFlightEntry entry
    if len(push) != 3:
        return 0
    if push[0] == b"message" and type(push[2]) is bytes:
        if nodes_are_told(self, push[2]):
            self.master.turns.append(connection_turn_of(push[1], push[2]))
    elif push[0] == b"subscribe" and self.in_flight.count:
        if self.in_flight.entries[self.in_flight.first].purpose != ENTRY_SUBSCRIBE:
            return connection_on_lost(self, "confirms what nobody asked for", now_ns)
        in_flight_pop(self.in_flight, &entry)


cdef int connection_ask_queues(
    Connection self, bint is_tagged, int64_t now_ns
) except -1:
    # One EXISTS asks for all that were released in this write: mostly nobody waits. If
    # there is a queue, the script follows for each, as this counts and does not name.
    # With clusters the queues are asked for one by one: each is in a hash slot.
    cdef int most = 1 if is_tagged else QUEUES_MOST
    cdef bytes prefix = self.master.scripts.name_prefix + QUEUE
    cdef list asked
    while self.released:
        asked, self.released = self.released[:most], self.released[most:]
        self.asked.append(asked)
        names = [round_queue(<Round>each) for each in asked]
        if is_tagged:
            names = [routes_tagged(<bytes>name) for name in names]
        words = (b"EXISTS", *[prefix + <bytes>name for name in names])
        connection_ask(self, ENTRY_QUEUES, words, now_ns)


cdef int connection_on_queues(Connection self, object reply) except -1:
    # An error: the user may not ask. Then the scripts do, on this connection.
    cdef Round release
    if reply_is_error(reply):
        self.asks_from_ns = NEVER_NS
    for release in self.asked.pop(0):
        if release.our_entry == OUR_ENTRY_ASKED:
            release.our_entry = OUR_ENTRY_LEAVES
            if type(reply) is not int or <object>reply > 0:
                self.awaited.append(release)


cdef int connection_on_turn_lost(
    Connection self, Round round, int64_t now_ns
) except -1:
    # The script of the gate is not known there (any more), and the round is over: so
    # our entry is as it was before. Act as if notified: this puts it right.
    if round.operation_code != OPERATION_ACQUIRE:
        return 0
    script = scripts_of(self.master.scripts, OPERATION_ACQUIRE, round.kind, ROLE_GATE)
    self.master.turns.append(round_entry(round))
    return connection_ask(self, ENTRY_LOAD, (b"SCRIPT", b"LOAD", script.source), now_ns)


cdef int connection_refuse_queue(Connection self, str error) except -1:
    # No queue is kept here from now on, for this connection. One warning: both its
    # channel and its scripts may be refused.
    if not self.may_queue:
        return 0
    self.may_queue = False
    self.master.conditions.deaf_epoch += 1
    if "NOREPLICAS" in error:      # for now: this connection ends by it
        return 0
    prefix = self.master.scripts.name_prefix.decode("utf-8", "backslashreplace")
    names = QUEUE_NAMES.replace("fastredlock", prefix + "fastredlock")
    return report_warned(self.report, [
        f"callers cannot wait in turn here ({error}), and poll instead: grant its user "
        f"+subscribe +publish +time +exists +pttl +pexpire +@sortedset {names}"
    ])


# --- replies --------------------------------------------------------------------------
# Received bytes as replies: each pops the oldest entry in flight, and becomes a vote of
# its round, or the end of the connection.


from hiredis import ProtocolError, PushNotification

cdef enum:
    UNPARSED_LIMIT = 1114112           # bytes; a push has a resource, up to 1 MiB


cdef int connection_on_bytes(Connection self, bytes data, int64_t now_ns) except -1:
    """Take received plain text: every whole reply in it pops its entry."""
    self.has_received = True
    try:
        connection_take_replies(self, data, now_ns)
    except BaseException as error:
        reason = None
        if isinstance(error, ProtocolError):
            reason = f"speaks something else than RESP: {error}"
            if data[:1] == b"\x15":      # an alert record: RFC 8446, section 5.1
                reason = "speaks TLS: use rediss:// for this master"
        connection_on_exception(self, error, reason, now_ns)
    if self.incoming is not None and self.incoming.unparsed > UNPARSED_LIMIT:
        connection_on_lost(self, "a reply of over 1 MiB: not to our commands", now_ns)


cdef int connection_take_replies(Connection self, bytes data, int64_t now_ns) except -1:
    # Usual replies at the beginning are read at sight, and the others by hiredis. A
    # reply may end the connection, and what follows is dropped.
    cdef const char *at = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data), taken = 0
    cdef int length = 0
    cdef Incoming incoming = self.incoming
    if incoming.is_between_replies:
        while taken < size and self.incoming is incoming:
            reply = usual_reply(at + taken, size - taken, &length)
            if reply is INCOMPLETE:
                break
            taken += length
            connection_on_reply(self, reply, now_ns)
        if taken == size or self.incoming is not incoming:
            return 0
        data = data[taken:]
    if not reply_feed(incoming, data, self.state_code == MASTER_READY):
        return connection_on_lost(
            self, "announces a million elements: no reply to our commands", now_ns
        )
    while self.incoming is incoming:
        reply = reply_next(incoming)
        if reply is INCOMPLETE:
            break
        if type(reply) is PushNotification:
            connection_on_push(self, reply, now_ns)
        else:
            connection_on_reply(self, reply, now_ns)
        if incoming.is_between_replies:
            break


cdef int connection_on_handshake_reply(
    Connection self, object reply, int64_t now_ns
) except -1:
    cdef Handshake handshake = self.handshake
    cdef bytes answer = handshake.on_reply(reply)
    if handshake.cluster_map is not None and not handshake.is_member:
        fault = routes_fault_of_node(
            self.master.routes, self.node, handshake.node_id, handshake.cluster_map,
            self.host,
        )
        answer = handshake.on_member(fault, routes_tag(self.master.routes, self.node))
    if handshake.failure is not None:
        if handshake.server_info.fields:
            self.server_info = handshake.server_info
        report_not_ready(
            self.report, handshake.warnings(),
            bool(handshake.server_info.fields) and not handshake.awaited,
        )
        nodes_warn_of_place(self, handshake.failure)
        return connection_on_lost(self, handshake.failure, now_ns)
    if answer:
        self.asked_ns = now_ns
    connection_write(self, answer, <size_t>len(answer), now_ns)
    if self.handshake is not handshake:      # no memory for it
        return 0
    # It begins anew with each answer: a client that blocks reads them only in its
    # calls, and each may take one more call. (Waits for connections have their own
    # limit.)
    connection_give_up_at(self, now_ns + self.master.connect_timeout_ns)
    if handshake.is_done and self.node == NODE_MAP:
        return nodes_on_map(self, handshake, now_ns)
    if handshake.is_done:
        connection_on_ready(self, handshake, now_ns)
        return connection_send_left(self, now_ns)


cdef int connection_on_reply(Connection self, object reply, int64_t now_ns) except -1:
    cdef InFlightEntry entry
    cdef Round round
    cdef int vote
    if self.state_code == MASTER_HANDSHAKE:
        return connection_on_handshake_reply(self, reply, now_ns)
    if self.in_flight.count == 0:
        return connection_on_lost(self, "sent a reply nobody asked for", now_ns)
    round = in_flight_pop(self.in_flight, &entry)
    self.heard_ns = now_ns
    self.asked_ns = entry.sent_ns
    slowness_on_reply(
        &self.slowness, self.master.conditions.slow_from_ns,
        self.link.looked_before_ns - entry.sent_ns, now_ns - entry.sent_ns, now_ns,
    )
    if round is None:
        return connection_on_other_reply(self, entry, reply, now_ns)
    if reply is None and round.operation_code == OPERATION_EXTEND and (
        not self.is_native_alone and form_is_native(entry.form)
        and round.verdict_code == VERDICT_OPEN and round_may_repeat(round)
    ):
        # The script can tell why the key is not there any more, and who broke the lock.
        entry.form = FORM_SCRIPT
        return connection_send_again(self, round, entry, now_ns)
    vote = vote_of(
        round.operation_code, reply_kind(round, entry.form, entry.is_second), reply
    )
    if vote == VOTE_TAKEN and round.operation_code == OPERATION_RELEASE and (
        entry.is_second or round.deleted_at == 1 + self.vote
    ):
        vote = VOTE_GRANTED      # deleted then: it was sent where the key could exist
    elif vote == VOTE_GRANTED and round.operation_code == OPERATION_RELEASE:
        round_on_deleted(round, self.vote)
    if vote == VOTE_FAILED and not reply_is_error(reply):
        return connection_end_by_reply(
            self, round, reply_text(reply), odd_text(reply), entry.key_until_ns, True,
            now_ns,
        )
    if vote == VOTE_FAILED:
        return connection_on_failed_reply(self, entry, round, reply, now_ns)
    self.is_proven = True
    self.failures = 0
    if form_is_native(entry.form):
        self.native_is_proven = True
    if entry.form == FORM_GATE:
        at_gate = reply[0] if type(reply) is list else reply
        if type(at_gate) is not int:      # WRONGTYPE: nobody was notified
            at_gate = 0
        if round.turn is not None:
            round_on_gate_reply(round, at_gate)
        if round.operation_code == OPERATION_RELEASE and 2 <= at_gate < GATE_MOVED:
            self.master.notified.append(round_queue(round))
        if at_gate >= GATE_MOVED:
            self.master.moved.append(round)
        elif vote == VOTE_TAKEN and round.verdict_code == VERDICT_WON and (
            round.operation_code == OPERATION_ACQUIRE
        ):
            self.master.turns.append(round_entry(round))      # our entry stays (pushes)
        elif at_gate == GATE_SET_FIRST and round.kind == KIND_SHARED and (
            round.verdict_code == VERDICT_WON
        ):
            self.master.turns.append(round_entry(round))
    if round.fencing is not None and vote == VOTE_GRANTED:
        fencing_on_granted(round, self.vote, entry.form == FORM_FENCE, reply)
    detail = None
    if round.operation_code == OPERATION_INSPECT or (
        round.operation_code == OPERATION_ASK_TURN
    ):
        detail = reply
    elif vote == VOTE_GONE and type(reply) is bytes:
        detail = reply      # it was broken, by whom
    elif reply is None and round.operation_code == OPERATION_EXTEND:      # native
        detail = KEY_GONE_OR_TAKEN      # nil is all that it answers
    return connection_on_definite(self, entry, round, vote, detail, now_ns)


cdef int connection_on_other_reply(
    Connection self, InFlightEntry entry, object reply, int64_t now_ns
) except -1:
    if not reply_is_error(reply) and type(reply) is not (
        list if entry.purpose in (ENTRY_TIME, ENTRY_MARK)
        else int if entry.purpose in (ENTRY_KILL, ENTRY_QUEUES)
        else bytes if entry.purpose in (ENTRY_LOAD, ENTRY_REPLICATION, ENTRY_ID)
        else None
    ):
        return connection_on_lost(self, odd_text(reply), now_ns)
    if entry.purpose == ENTRY_TIME:
        if self.clock.on_time(reply, entry.sent_ns, now_ns):
            report_for_review(self.report)
    elif entry.purpose == ENTRY_SUBSCRIBE:
        return connection_refuse_queue(self, reply_text(reply))
    elif entry.purpose == ENTRY_QUEUES:
        return connection_on_queues(self, reply)
    elif entry.purpose == ENTRY_KILL:
        self.lost_ids = self.lost_ids[1:]
    elif entry.purpose == ENTRY_LOAD and reply_is_error(reply) and (
        "'asking'" in reply_text(reply)
    ):
        report_warned(self.report, [
            f"leases whose key has moved are lost ({reply_text(reply)}): grant +asking"
        ])
    elif entry.purpose == ENTRY_ID:
        if not reply_is_error(reply) and reply != self.node_id:
            return connection_on_lost(self, OTHER_CLUSTER, now_ns)
    elif entry.purpose == ENTRY_REPLICATION and not reply_is_error(reply):
        told = ServerInfo(reply)
        told.on_asked(self.server_info)
        if told.role != "master" or (
            not told.is_after(self.restart_guard.identity, True)
        ):
            return connection_on_lost(self, "is another primary than it was", now_ns)
        identity = told.known_as(True)
        if identity != self.restart_guard.identity and told.needed:
            self.restart_guard.identity = identity      # for who has no memory as well
            words = marker_words(
                told, self.master.scripts.named["marker"], self.master.max_ttl_ns,
                self.restart_guard.failover_ns, b"",
            )
            return connection_ask(self, ENTRY_MARK, words, now_ns)


cdef int connection_on_failed_reply(
    Connection self, InFlightEntry entry, Round round, object reply, int64_t now_ns
) except -1:
    # An error reply means that the command did nothing: it is as definite as a no.
    cdef str error = reply_error(reply), text = reply_text(reply)
    cdef bint is_unknown = error.startswith("NOSCRIPT")
    if self.node != NODE_NONE and routes_is_redirect(error):
        return connection_on_redirect(self, entry, round, error, now_ns)
    # After a switch it closes no connection itself; and an old primary that a failover
    # has cut off from its replicas never knows that it is one.
    cdef bint is_replaced = text_is_of_replica(error) or (
        self.restart_guard.failover_ns != 0 and "NOREPLICAS" in error
    )
    self.is_proven = not is_replaced      # else it is opened again at once, for ever
    if self.is_proven:
        self.failures = 0
    if round_may_repeat(round):
        if form_is_native(entry.form) and not self.is_native_alone:
            # The script may be allowed to do what the command is not.
            if text_is_for_good(error):
                self.native = FORM_SCRIPT
            entry.form = FORM_SCRIPT
            if round.our_entry == OUR_ENTRY_ASKED:
                round.our_entry = OUR_ENTRY_LEAVES
                entry.form = FORM_GATE
            entry.is_by_source = self.may_eval
            round_on_repeated(round)
            return connection_send_again(self, round, entry, now_ns)
        if is_unknown and not entry.is_by_source:
            self.master.counters.repeated_scripts += 1
            entry.is_by_source = True
            round_on_repeated(round)
            return connection_send_again(self, round, entry, now_ns)
    if is_unknown and entry.form == FORM_GATE:
        connection_on_turn_lost(self, round, now_ns)
    if round.operation_code == OPERATION_RELEASE:
        if text_is_for_good(error):
            return connection_on_forbidden_release(self, entry, round, reply, now_ns)
        if text_is_of_now(error) or is_replaced:
            # A slow script runs there: the server does nothing else until it has ended.
            # The next handshake succeeds then, and the release is sent behind it. Or
            # the key is on another server by now, to which the next connection leads.
            return connection_end_by_reply(
                self, round, text, text, entry.key_until_ns, entry.is_second, now_ns
            )
    # A right to one key, or to a script of queues, is no matter of the master's.
    if (
        round.operation_code == OPERATION_ACQUIRE
        or round.operation_code == OPERATION_PING
    ) and FOREIGN not in text and (
        text_has(text, OF_STATE)
        or entry.form != FORM_GATE and text_is_of_command(text)
    ):
        report_refused(self.report, text, now_ns + REFUSED_NS, now_ns)
    connection_on_definite(self, entry, round, VOTE_FAILED, text, now_ns)
    return connection_on_lost(self, text, now_ns) if is_replaced else 0


cdef int connection_on_redirect(
    Connection self, InFlightEntry entry, Round round, str error, int64_t now_ns
) except -1:
    # A node of a cluster does not have the key, or not now: the command follows it, in
    # the time that its round has. A release that cannot is kept for the next map. The
    # text leaves out the address: callers know the cluster by another.
    cdef int at = routes_on_redirect(self.master.routes, error, self.host)
    cdef Connection node, home = self.master.connection
    cdef bint asks = error.startswith("ASK ")
    if self.master.routes.is_stale:
        report_for_review(self.report)
    if error.startswith("MOVED "):
        connection_ask_replication(self, now_ns)
    if at >= 0 and entry.hops < HOPS_MOST and round_may_repeat(round) and (
        not asks or connection_may_ask(entry, round)
    ):
        node = nodes_at(self.master, at, now_ns)
        if asks or node.place < 0:
            report_for_review(self.report)
        entry.hops += 1
        text = connection_withheld(node, now_ns)
        if text is not None and round.operation_code == OPERATION_ACQUIRE:
            return connection_on_definite(self, entry, round, VOTE_FAILED, text, now_ns)
        if form_is_native(entry.form) and node.native != entry.form or asks:
            entry.form = FORM_SCRIPT
        connection_doubt(node, now_ns)
        if node.state_code == MASTER_READY:
            if connection_was_silent(node, now_ns):
                connection_ask_replication(node, now_ns)
            if asks:
                connection_ask(node, ENTRY_LOAD, (b"ASKING",), now_ns)
            return connection_send_again(node, round, entry, now_ns)
        if round.operation_code == OPERATION_RELEASE:
            deferred_add(node.in_flight, round, entry.key_until_ns, entry.is_second)
        if round.verdict_code == VERDICT_OPEN and not asks:
            node.in_flight.unanswered.append(round)      # sent when it is READY
            return 0
    elif round.operation_code == OPERATION_RELEASE:
        deferred_add(home.in_flight, round, entry.key_until_ns, entry.is_second)
        due_note(self.master.due, max(home.retry_at_ns, now_ns))
        self.master.routes.is_stale = True
        report_for_review(self.report)
    text = error.rpartition(" ")[0] if at >= 0 else error
    if operation_is(round.operation_code, OPERATION_GIVES_TTL):
        return connection_on_definite(self, entry, round, VOTE_FAILED, text, now_ns)
    return round_on_vote(round, self.vote, VOTE_FAILED, text, False, now_ns)


cdef bint connection_may_ask(InFlightEntry entry, Round round) noexcept:
    # In the middle of a move, return whether it asks only for what is there already. A
    # key that is set at the target would not be the slot's if the move is given up, and
    # the target forgets that it takes the slot if it fails over. Nor does a script over
    # several keys go there: it would find some of them on each side.
    return round.kind != KIND_SEVERAL and (
        round.operation_code == OPERATION_EXTEND
        or round.operation_code == OPERATION_RELEASE
    )


cdef int connection_on_forbidden_release(
    Connection self, InFlightEntry entry, Round round, object reply, int64_t now_ns
) except -1:
    # The ACL or a proxy has changed, or forbids a key that it lets us SET. Where it is
    # a command, no lock may be taken here any more: the next handshake finds out, or
    # has the right back (and the script loaded again), and then the release is sent,
    # once.
    cdef bint is_command = text_is_of_command(reply_error(reply))
    text = reply_text(reply)
    if not is_command:
        text = f"a lock was not released here ({text}): grant its user the key (~...)"
        report_warned(self.report, [text])
    if not is_command or entry.key_until_ns != NEVER_NS:
        return round_on_vote(
            round, self.vote, VOTE_FAILED, reply_text(reply), True, now_ns
        )
    text = unreleased_text(text, "+evalsha +eval +get +del")
    report_warned(self.report, [text])
    return connection_end_by_reply(self, round, text, text, NEVER_NS, False, now_ns)
