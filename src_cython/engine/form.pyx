# A round's command, in each form that one of its masters is to be sent.
#
# All forms are in one buffer, one behind the other.


cdef inline int form_for(Master self, Round round, bint by_source) noexcept:
    # Where nobody may read an error (by_source), a native command goes only where one
    # has been answered before: an ACL may forbid it.
    if round.gate == self.index and (
        operation_is(round.operation_code, OPERATION_CHANGES_KEY)
    ):
        if round.queue_check == QUEUE_CHECK_WANTED and not by_source:
            return FORM_QUEUE_CHECK
        if round.queue_check == QUEUE_CHECK_GATHERED and not by_source:
            return self.native
        return FORM_GATE
    if self.native != FORM_SCRIPT and native_replaces(round, self.scripts) and (
        self.native_is_proven or not by_source
    ):
        return self.native
    return FORM_SCRIPT


cdef int engine_encode(
    Engine self, Buffer *out, Buffer *forms, Round round, uint64_t masters,
    bint by_source,
) except -1:
    # `forms` are views into `out`, empty where no master needs one.
    cdef Master master
    cdef int form, error, needed = 0
    for master in self.masters:
        if (masters >> master.index) & 1:
            needed |= 1 << form_for(master, round, by_source)
    for form in range(FORMS):
        forms[form].start = out.end
        if (needed >> form) & 1:
            if form == FORM_GATE:
                error = command_of_gate(
                    out, round, self.scripts, by_source, self.queues.leaving
                )
            elif form == FORM_SCRIPT:
                error = command_of_round(out, round, self.scripts, by_source, False)
            elif form == FORM_QUEUE_CHECK:
                master = <Master>self.masters[round.gate]
                error = native_command(out, round, master.native)
                if error == 0:
                    error = native_queue_check(out, round, self.scripts.name_prefix)
            else:
                error = native_command(out, round, form)
            if error != 0:
                raise MemoryError
        forms[form].end = out.end
    for form in range(FORMS):      # it may have moved
        forms[form].data = out.data
    return 0
