# What a server reports without being asked: it is this process's turn for a resource.
#
# Each process has one channel, on which every gate it waits at notifies it. A push is
# no reply: it takes no entry in flight, and comes at any place between two replies. The
# one exception is the answer to SUBSCRIBE itself, which RESP3 gives as a push; refused,
# it is an error as any other.


cdef bytes CHANNEL = b"fastredlock:waiter:"      # behind the key_prefix
cdef str QUEUE_NAMES = "~fastredlock:* &fastredlock:*"


cdef int master_subscribe(Master self, bytes waiter, int64_t now_ns) except -1:
    # Once for each connection, when it first waits there.
    cdef InFlightEntry entry = in_flight_entry(NEVER_NS, False)
    if self.is_subscribed:
        return 0
    command = command_encode(
        (b"SUBSCRIBE", self.scripts.name_prefix + CHANNEL + waiter)
    )
    self.is_subscribed = True
    entry.kind = ENTRY_SUBSCRIBE
    in_flight_push(self.in_flight, None, entry, now_ns)
    return master_write(self, command, now_ns)


cdef int master_on_push(Master self, object push, int64_t now_ns) except -1:
    if len(push) != 3:
        return 0
    if push[0] == b"message" and type(push[2]) is bytes:
        self.turns.append(push[2])
    elif push[0] == b"subscribe" and self.in_flight.count:
        if self.in_flight.entries[self.in_flight.first].kind != ENTRY_SUBSCRIBE:
            return master_on_lost(self, "confirms what nobody asked for", now_ns)
        in_flight_pop(self.in_flight)
    return 0


cdef int master_on_unsubscribed(Master self, object reply, int64_t now_ns) except -1:
    if not reply_is_error(reply):
        return master_on_lost(self, strange_text(reply), now_ns)
    return master_refuse_queue(self, reply_text(reply))


cdef int master_on_turn_lost(Master self, Round round, int64_t now_ns) except -1:
    # The script of the gate is not known there (any more), and the round is over: so
    # our entry is as it was before. Act as if notified: this puts it right.
    cdef InFlightEntry entry = in_flight_entry(NEVER_NS, False)
    if round.operation_code != OPERATION_ACQUIRE:
        return 0
    script = scripts_of(self.scripts, OPERATION_ACQUIRE, round.kind, ROLE_GATE)
    command = command_encode((b"SCRIPT", b"LOAD", script.source))
    self.turns.append(round.resource)
    entry.kind = ENTRY_LOAD
    in_flight_push(self.in_flight, None, entry, now_ns)
    return master_write(self, command, now_ns)


cdef int master_refuse_queue(Master self, str error) except -1:
    # No queue is kept here from now on, for this connection. One warning: both its
    # channel and its scripts may be refused.
    if not self.may_queue:
        return 0
    self.may_queue = False
    self.counters.deaf_epoch += 1
    prefix = self.scripts.name_prefix.decode("utf-8", "backslashreplace")
    names = QUEUE_NAMES.replace("fastredlock", prefix + "fastredlock")
    return master_add_warnings(self, [
        f"callers cannot wait in turn here ({error}), and poll instead: grant its user "
        f"+subscribe +publish +time +exists +pttl +pexpire +@sortedset {names}"
    ])
