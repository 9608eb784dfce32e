# Commands of one master's connection, encrypted or not: into its link, each with its
# entry in flight.

cdef enum:
    NOTIFYING_MOST = 64                # deferred releases, of 1.4 KB each


cdef int master_send(
    Master self, Round round, Buffer *command, InFlightEntry entry, int64_t now_ns
) except -1:
    # The entry first: bytes without one would shift every later reply.
    if round.fencing is not None and not (entry.fence or entry.is_at_gate) and (
        fencing_is_plain(round, entry.is_by_source, entry.is_second)
    ):
        entry.replies = fencing_replies(round)
    in_flight_push(self.in_flight, round, entry, now_ns)
    round_on_sent(round, self.index)
    if self.tls is not None:
        return master_write(self, command.data[command.start:command.end], now_ns)
    if buffer_append(
        &self.link.outgoing, command.data + command.start, buffer_length(command)
    ) != 0:
        return master_on_lost(self, "out of memory", now_ns)
    return 0


cdef int master_send_again(
    Master self, Round round, InFlightEntry entry, int64_t now_ns
) except -1:
    cdef Buffer command
    cdef int error
    memset(&command, 0, sizeof(Buffer))
    try:
        if entry.fence:
            error = command_fence(
                &command, round, self.scripts, entry.fence, entry.is_by_source
            )
        elif self.is_native_alone and native_replaces(round, self.scripts):
            entry.is_native, entry.is_at_gate = True, False
            error = native_command(&command, round, self.native)
        elif entry.is_at_gate:
            error = command_of_gate(
                &command, round, self.scripts, entry.is_by_source, self.leaving
            )
        else:
            error = command_of_round(
                &command, round, self.scripts, entry.is_by_source, entry.is_second
            )
        if error != 0:
            raise MemoryError
        if self.state_code == MASTER_READY:
            master_send(self, round, &command, entry, now_ns)
        else:      # lost in the middle of it; bytes here would go before HELLO
            master_on_unsent(self, round, entry, now_ns)
    finally:
        buffer_free(&command)
    return 0


cdef int master_on_unsent(
    Master self, Round round, InFlightEntry entry, int64_t now_ns
) except -1:
    # There is no connection: as where the connection is lost just after the send.
    if round.operation_code == OPERATION_RELEASE:
        deferred_add(self.in_flight, round, entry.key_until_ns, entry.is_second)
        counters_note_due(self.counters, max(self.retry_at_ns, now_ns))
    if round.verdict_code == VERDICT_OPEN:
        reason = self.reason
        if not self.last_error and (
            MASTER_CONNECTING <= self.state_code <= MASTER_HANDSHAKE
        ):      # it may be well
            reason = f"not connected in time: {reason}"
        round_on_vote(round, self.index, VOTE_FAILED, reason, False, now_ns)
    return 0


cdef int master_send_deferred(Master self, int64_t now_ns) except -1:
    # By source: there may be no caller to read that a server does not know the script.
    # At its gate by the script that notifies: a command that was cut may have deleted
    # and notified nobody. Another caller may wait by now: our queue entry stays.
    cdef DeferredRelease each
    cdef InFlightEntry entry
    cdef int notifying = 0
    for each in deferred_take(self.in_flight, now_ns):
        entry = in_flight_entry(each.key_until_ns, each.is_second)
        entry.is_by_source = self.may_eval
        entry.is_at_gate = (
            each.release.gate == self.index and notifying < NOTIFYING_MOST
        )
        if entry.is_at_gate:
            notifying += 1
            each.release.our_entry = OUR_ENTRY_AS_IS
        master_send_again(self, each.release, entry, now_ns)
    return 0


cdef int master_send_unanswered(Master self, int64_t now_ns) except -1:
    # Send again the rounds that the last connection left open. Releases are sent with
    # the deferred ones.
    cdef Round round
    empty = []
    unanswered, self.in_flight.unanswered = self.in_flight.unanswered, empty
    for round in unanswered:
        if round.operation_code == OPERATION_RELEASE or (
            round.verdict_code != VERDICT_OPEN
            or round.cells[self.index].vote != VOTE_PENDING      # withheld since
        ):
            continue
        if round_may_repeat(round):
            master_send_again(self, round, in_flight_entry(NEVER_NS, True), now_ns)
        elif round_is_of_released(round):      # its caller still waits for this vote
            round_on_vote(round, self.index, VOTE_FAILED, NOT_SENT, False, now_ns)
    return 0


cdef int master_ask_time(Master self, int64_t now_ns) except -1:
    # Goes with a round's command, in the same write; its reply is no vote.
    cdef InFlightEntry entry = in_flight_entry(NEVER_NS, False)
    entry.kind = ENTRY_TIME
    self.clock.asked_at_ns = now_ns
    in_flight_push(self.in_flight, None, entry, now_ns)
    return master_write(self, b"*1\r\n$4\r\nTIME\r\n", now_ns)


cdef int master_kill_lost(Master self, int64_t now_ns) except -1:
    # Have the server end our lost connections before it executes anything behind this:
    # commands of theirs that it has not executed by then, it never will. (An ACL may
    # forbid it.)
    cdef InFlightEntry entry = in_flight_entry(NEVER_NS, False)
    if self.lost_run_id is None or self.lost_run_id != self.server_info.run_id:
        self.lost_ids = []      # of another server: ids begin anew when a server does
    entry.kind = ENTRY_KILL
    for client_id in self.lost_ids:
        command = command_encode((b"CLIENT", b"KILL", b"ID", decimal_bytes(client_id)))
        in_flight_push(self.in_flight, None, entry, now_ns)
        master_write(self, command, now_ns)
    return 0


cdef int master_write(Master self, bytes plain, int64_t now_ns) except -1:
    # Queue plain text. That of TLS is encrypted just before the next bytes are written
    # (engine_before_write): ssl runs Python code, and this may be called between two
    # halves of a change.
    if self.tls is None:
        return master_append(self, plain, now_ns)
    self.tls.unencrypted.append(plain)
    return 0


cdef int master_encrypt(Master self, int64_t now_ns) except -1:
    # ssl runs Python code, in which a signal handler may take a lock, raise or fork.
    # The first finds the master busy, and its command waits in `unencrypted`, in the
    # order of the entries. After an exception it is not known how much was encrypted:
    # an entry without its bytes would shift every later reply. In a forked child the
    # records are the parent's.
    tls = self.tls
    self.link.is_parsing = True
    try:
        while (
            self.tls is tls and tls is not None and tls.unencrypted
            and tls.is_established
        ):
            records = tls.encrypt(tls.unencrypted.pop(0))
            if self.tls is tls:
                master_append(self, records, now_ns)
    except BaseException as error:
        return master_on_exception(self, error, tls_reason(error), now_ns)
    finally:
        self.link.is_parsing = False
    return 0


cdef int master_append(Master self, bytes data, int64_t now_ns) except -1:
    if not data:      # nothing to send yet; memcpy(3) to no buffer is undefined
        return 0
    if buffer_append(
        &self.link.outgoing, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data)
    ) != 0:      # an entry without its bytes would shift every later reply
        return master_on_lost(self, "out of memory", now_ns)
    return 0
