# The review of a master that has become READY, or has something to report: warnings for
# the user, each once, and the masters that must not vote.


cdef int engine_review_master(Engine self, Master master, int64_t now_ns) except -1:
    # A master has become READY, its clock jumped, or it has a new warning.
    cdef Master other
    master.needs_review = False
    if master.clock.step_ns:
        step_s = master.clock.step_ns / 1e9
        engine_warn(self, master, f"its clock jumped by {step_s:+.3f} s")
    empty = []
    new_warnings, master.new_warnings = master.new_warnings, empty
    for text in master.server_info.warnings() + new_warnings:
        engine_warn(self, master, text)
    refusal = None
    for other in self.masters:
        if (
            other is not master and other.state_code == MASTER_READY
            and master.identity is not None and other.identity == master.identity
            and not engine_may_share(self, master, other)
        ):
            refusal = f"is the same server as {other.name}: one server has one vote"
            if master.server_info.run_id is None or other.server_info.run_id is None:
                refusal += " (or has a copy of its data: grant +info to tell)"
    if refusal is not None and master.state_code == MASTER_READY:
        engine_warn(self, master, refusal)
        return master_on_lost(master, refusal, now_ns)
    return master_note_back(master, now_ns)


cdef bint engine_may_share(Engine self, Master master, Master other) except -1:
    # Databases of one server, where a replaced library took them.
    if not self.servers_may_be_same or other.settings.db == master.settings.db:
        return False
    if other.settings.server != master.settings.server:    # else it was reported before
        engine_warn(
            self, master,
            f"is the same server as {other.name}: its databases fail together",
        )
    return True


cdef int engine_warn(Engine self, Master master, str text) except -1:
    if (master.name, text) not in self.warnings:
        self.warnings.append((master.name, text))
        self.counters.unlogged.append((LEVEL_WARNING, master.name, text))
    return 0
