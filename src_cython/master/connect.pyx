# Opening a connection: when it is due, login (preparing), name, address, connect(2),
# TLS and handshake. Nothing here waits. Its end, and the back-off after a failure,
# are in ending.

cdef enum:
    BACKOFF_URGENT_NS = 20_000_000     # the spacing when a quorum is missing


cdef bint master_is_due(Master self, bint is_urgent, int64_t now_ns) noexcept:
    if self.link.is_parsing:
        return False
    if self.state_code == MASTER_BACKOFF:
        return self.retry_at_ns <= now_ns or (
            is_urgent and self.lost_at_ns + BACKOFF_URGENT_NS <= now_ns
        )
    return self.state_code == MASTER_CLOSED


cdef bint master_is_opening(Master self) noexcept:
    return (
        self.state_code == MASTER_CONNECTING or self.state_code == MASTER_HANDSHAKE
    )


cdef int master_begin_connect(Master self, int64_t now_ns) except -1:
    master_set_state(self, MASTER_CONNECTING)
    master_set_reason(self, self.last_error or "connecting")
    master_give_up_at(self, now_ns + self.connect_timeout_ns)
    return 0


cdef int master_open(Master self, int64_t now_ns) except -1:
    """Begin to connect; nothing here waits."""
    master_begin_connect(self, now_ns)
    if self.prepare is not None:
        return master_begin_preparing(self, now_ns)
    return master_find_address(self, now_ns)


cdef int master_begin_preparing(Master self, int64_t now_ns) except -1:
    # gevent's start of a thread runs Python code, in which a signal handler may come
    # back here.
    cdef Preparing preparing = self.preparing
    cdef int fd
    if preparing is None or preparing_is_stale(preparing, now_ns):
        self.link.is_parsing = True
        try:
            self.preparing = None
            self.preparing = preparing = preparing_begin(self.prepare)
        except BaseException as error:      # too many threads, or the end of all
            if isinstance(error, RuntimeError) and self.settings.credentials is None:
                return master_find_address(self, now_ns)      # by the files as read
            reason = None
            if isinstance(error, (OSError, RuntimeError)):
                reason = f"no thread for its credentials: {error}"
            return master_on_exception(self, error, reason, now_ns)
        finally:
            self.link.is_parsing = False
        if self.state_code != MASTER_CONNECTING or self.link.fd >= 0:
            return 0      # closed, or a fork, inside of it
    master_set_reason(self, self.last_error or "waits for its credentials")
    fd = preparing_watch(preparing)
    if fd < 0:
        return master_on_lost(self, error_text(fd), now_ns)
    self.link.fd = fd
    self.link.phase = LINK_RESOLVING
    return 0


cdef int master_on_prepared(Master self, int64_t now_ns) except -1:
    cdef Preparing preparing = self.preparing
    link_close(&self.link)
    if preparing_is_stale(preparing, now_ns):      # it was not read for a while
        return master_begin_preparing(self, now_ns)
    self.preparing = None
    if preparing.failure is not None:
        return master_on_lost(self, preparing.failure, now_ns)
    self.prepared = preparing.given
    master_give_up_at(self, now_ns + self.connect_timeout_ns)
    return master_find_address(self, now_ns)


cdef int master_find_address(Master self, int64_t now_ns) except -1:
    cdef bytes host
    self.addresses = AddressList()
    try:
        if address_is_unix(self.addresses, self.settings.path):
            return master_try_address(self, now_ns)
        host = self.settings.host.encode(
            "ascii" if self.settings.host.isascii() else "idna"
        )
        if address_is_literal(self.addresses, host, self.settings.port):
            return master_try_address(self, now_ns)
        return master_look_up(self, host, self.settings.port, now_ns)
    except BaseException as error:      # the codec of a Unicode name runs Python code
        reason = None
        if isinstance(error, (OSError, RuntimeError, UnicodeError)):
            reason = f"{type(error).__name__}: {error}"
        return master_on_exception(self, error, reason, now_ns)


cdef int master_look_up(Master self, bytes host, int port, int64_t now_ns) except -1:
    cdef int fd
    self.addresses.look_up = look_up_of(host, port, now_ns)
    fd = look_up_watch(self.addresses.look_up)
    if fd < 0:
        return master_on_lost(self, error_text(fd), now_ns)
    self.link.fd = fd
    self.link.phase = LINK_RESOLVING
    return 0


cdef int master_on_resolved(Master self, int64_t now_ns) except -1:
    cdef LookUp look_up
    if self.addresses is None:
        return master_on_prepared(self, now_ns)
    look_up = self.addresses.look_up
    link_close(&self.link)
    if look_up_is_stale(look_up, now_ns):      # it was not read for a while
        master_give_up_at(self, now_ns + self.connect_timeout_ns)
        try:
            return master_look_up(self, look_up.name[0], look_up.name[1], now_ns)
        except OSError as error:
            return master_on_lost(self, f"{type(error).__name__}: {error}", now_ns)
    look_up_forget(look_up)
    if look_up.state.gai_error != 0:
        text = <bytes>gai_strerror(look_up.state.gai_error)
        reason = f"name look-up: {text.decode('utf-8', 'replace').lower()}"
        return master_on_lost(self, reason, now_ns)
    self.addresses.look_up = None
    self.addresses.count = look_up.state.count
    memcpy(
        self.addresses.addresses, look_up.state.addresses,
        sizeof(look_up.state.addresses),
    )
    return master_try_address(self, now_ns)


cdef int master_try_address(Master self, int64_t now_ns) except -1:
    # From the one on that did not fail last. A name's last has most of the time: those
    # before it that answer do so at once, and who waits for them may wait for less.
    cdef Address *address
    cdef int error, count = self.addresses.count
    cdef int64_t share_ns
    if self.addresses.next >= count:
        return master_on_lost(self, "the name has no address", now_ns)
    address = &self.addresses.addresses[self.bad_addresses % <uint32_t>count]
    self.addresses.next += 1
    share_ns = self.connect_timeout_ns // (4 * count)
    if self.addresses.next == count:
        share_ns = self.connect_timeout_ns - (count - 1) * share_ns
    master_give_up_at(self, now_ns + share_ns)
    error = link_open(&self.link, <sockaddr *>&address.storage, address.size)
    if error != 0:
        return master_on_address_failed(self, error_text(error), now_ns)
    return 0


cdef int master_on_address_failed(Master self, str reason, int64_t now_ns) except -1:
    self.bad_addresses += 1
    if self.addresses is not None and self.addresses.next < self.addresses.count:
        link_close(&self.link)
        return master_try_address(self, now_ns)
    return master_on_lost(self, reason, now_ns)


cdef int master_check_time(
    Master self, int64_t polled_before_ns, int64_t now_ns
) except -1:
    """Give up a connection that is overdue; called once all that came was read."""
    if self.state_code == MASTER_READY:
        if in_flight_is_overdue(self.in_flight, polled_before_ns, now_ns):
            master_on_lost(self, "owed a reply for too long", now_ns)
    elif self.state_code == MASTER_HANDSHAKE:
        if now_ns >= self.give_up_at_ns:
            master_on_lost(self, master_silence_text(self), now_ns)
    elif self.state_code == MASTER_CONNECTING and now_ns >= self.give_up_at_ns:
        reason = "connect timed out"
        if self.link.phase == LINK_RESOLVING:
            reason = "name look-up takes too long"
            if self.addresses is None:
                reason = "its credentials take too long"
        master_on_address_failed(self, reason, now_ns)
    return 0


cdef int master_on_connect_event(Master self, int64_t now_ns) except -1:
    cdef int error = link_finish_connect(&self.link)
    if error == -EINPROGRESS:
        return 0
    if error != 0:
        return master_on_address_failed(self, error_text(error), now_ns)
    return master_on_connected(self, now_ns)


cdef int master_on_connected(Master self, int64_t now_ns) except -1:
    # All that is made comes first: before 3.12 it may run a finalizer, whose own calls
    # may give this connection up, and connect again.
    cdef int64_t this_give_up_at_ns = self.give_up_at_ns
    cdef Handshake handshake
    reader = reply_reader()
    feed, gets = reader.feed, reader.gets
    username, password, context = (
        encoded(self.settings.username), encoded(self.settings.password), None
    )
    if self.prepared is not None:
        username, password, context = self.prepared
    handshake = Handshake(
        username, password, self.settings.db,
        self.client_name,
        scripts_to_load(self.scripts),
        self.scripts.named.get("probe"), self.scripts.named.get("marker"),
        self.restart_guard.max_ttl_ns,
        native_probe_key(self.scripts),
    )
    if self.state_code != MASTER_CONNECTING or (
        self.give_up_at_ns != this_give_up_at_ns
    ):
        return 0
    self.prepared = None
    if context is not None:
        self.tls_context = context
    self.feed = feed
    self.gets = gets
    self.unparsed = 0
    self.is_between_replies = False
    self.scan.where = SCAN_LINE_START
    self.is_proven = False
    self.handshake = handshake
    master_set_state(self, MASTER_HANDSHAKE)
    master_set_reason(self, self.last_error or "no answer to the handshake yet")
    self.has_received = False
    master_give_up_at(self, now_ns + self.connect_timeout_ns)
    try:
        if self.tls_context is not None:
            master_set_reason(
                self, "no answer to TLS yet: does the server speak it on this port?"
            )
            self.link.is_parsing = True
            # Without the final dot of a full name: RFC 6066, section 3.
            name = self.settings.host.removesuffix(".")
            self.tls = tls = TlsSession(self.tls_context, name)
            records = tls.start()
            if self.tls is not tls:      # closed, or a fork, inside of it
                return 0
            master_append(self, records, now_ns)
    except BaseException as error:
        return master_on_exception(self, error, tls_reason(error), now_ns)
    finally:
        self.link.is_parsing = False
    first = handshake.start()
    if self.handshake is not handshake:
        return 0
    return master_write(self, first, now_ns)


cdef bytes encoded(str text):
    return None if text is None else text.encode("utf-8", "surrogateescape")


cdef int master_on_handshake_reply(Master self, object reply, int64_t now_ns) except -1:
    # Each object that is made here may run a finalizer before 3.12, whose own calls may
    # give this connection up, and begin the next one.
    cdef Handshake handshake = self.handshake
    cdef bytes answer = handshake.on_reply(reply)
    cdef list warnings = None
    if handshake.failure is not None or handshake.is_done:
        warnings = handshake.warnings()
    if self.handshake is not handshake:
        return 0
    if handshake.failure is not None:
        if handshake.server_info.fields:
            self.server_info = handshake.server_info
        master_add_warnings(self, warnings)
        return master_on_lost(self, handshake.failure, now_ns)
    master_write(self, answer, now_ns)
    if self.handshake is not handshake:      # TLS refused to take it
        return 0
    # Anew for each answer: a client that blocks reads them in its calls alone, and each
    # may take one more call. (Who waits for connections has a limit of its own.)
    master_give_up_at(self, now_ns + self.connect_timeout_ns)
    if handshake.is_done:
        return master_on_ready(self, handshake, warnings, now_ns)
    return 0


cdef int master_on_ready(
    Master self, Handshake handshake, list warnings, int64_t now_ns
) except -1:
    clock = ServerClock()
    if self.handshake is not handshake:
        return 0
    self.server_info = handshake.server_info
    self.clock = clock
    self.client_id = handshake.client_id
    self.may_eval = not handshake.rights.lacks_eval()
    self.may_queue = handshake.speaks_resp3 and not handshake.is_native_alone
    self.is_subscribed = False
    self.queue_check_from_ns = 0
    self.native = handshake.native
    self.native_is_proven = self.is_native_alone = handshake.is_native_alone
    self.refused_until_ns = 0
    master_identify(self, self.server_info, handshake.mark, now_ns)
    master_add_warnings(self, warnings)
    self.needs_review = True
    self.handshake = None
    master_set_state(self, MASTER_READY)
    master_set_reason(self, "")
    self.ready_at_ns = now_ns
    self.heard_ns = now_ns
    self.counters.connects += 1
    self.counters.life_epoch += 1
    self.connects += 1
    master_kill_lost(self, now_ns)
    master_send_deferred(self, now_ns)
    counters_note_due(self.counters, now_ns + OVERDUE_AT_LEAST_NS)
    return 0


cdef int master_identify(
    Master self, ServerInfo server_info, Mark mark, int64_t now_ns
) except -1:
    # Which server this is, and from when on it may vote.
    self.identity = server_info.run_id
    if self.identity is None and mark is not None:
        self.identity = mark.holder
    restart_guard_on_ready(self.restart_guard, server_info, mark, self.identity, now_ns)
    self.votes_from_ns = self.restart_guard.until_ns
    return 0
