# What a gate is asked about many queues together.
#
# A process that waits for one resource asks its gate by itself (asking). Where it waits
# for several, all questions that the time brings go together: for each gate one, a few
# times per second, of the queues that have been due for longest. So the commands per
# second have a bound, however many wait, and a queue is asked about the less often, the
# more there are: all of them within 10 s, up to 20,000 at one gate. The tries on all
# masters have such a bound, too: one per second, of one queue after the other.
#
# To enter a queue, and whatever a push, a release or an answer brings, is done at once.

cdef enum:
    QUESTIONS_EVERY_NS = 250_000_000
    RATES_EVERY_NS = 10_000_000      # of a rate nobody is notified
    TRY_AMONG_NS = 1_000_000_000


cdef inline bint engine_waits_for_many(Engine self) noexcept:
    return len(self.queues.by_resource) > 1


cdef int engine_ask_soon(Engine self, WaitQueue queue, int64_t now_ns) except -1:
    # By itself, or with the next question of many.
    cdef Questions questions
    cdef int gate = engine_gate(self, queue.resource, now_ns)
    cdef Round head = wait_queue_head(queue)
    cdef int64_t due_ns
    if gate < 0 or not engine_waits_for_many(self):
        return engine_ask(self, queue, now_ns)
    questions = wait_queues_questions(self.queues, gate)
    if head is not None and head.terms.is_of_rate:
        questions.queues.insert(0, queue)
        due_ns = max(now_ns, questions.asked_ns + RATES_EVERY_NS)
    else:
        questions.queues.append(queue)
        due_ns = max(now_ns, questions.asked_ns + QUESTIONS_EVERY_NS)
    if questions.due_ns > due_ns:
        engine_set_questions_due(self, questions, due_ns)
    return 0


cdef int engine_set_questions_due(
    Engine self, Questions questions, int64_t due_ns
) except -1:
    questions.due_ns = due_ns
    return engine_add_due(self, due_ns, questions)


cdef int engine_ask_together(
    Engine self, Questions questions, int64_t now_ns
) except -1:
    # Those that were asked about meanwhile have a time of their own again.
    cdef WaitQueue queue
    cdef list asked = []
    cdef list taken = wait_queues_take_questions(questions)
    questions.asked_ns = now_ns
    questions.due_ns = NEVER_NS
    if questions.queues:
        engine_set_questions_due(self, questions, now_ns + QUESTIONS_EVERY_NS)
    engine_open_due(self, False, now_ns)
    for queue in taken:
        if queue.due_ns != NEVER_NS:
            continue
        if queue.opened is not None or not queue.rounds:
            engine_on_idle_queue(self, queue, now_ns)
        elif engine_gate(self, queue.resource, now_ns) != questions.gate:
            engine_ask_soon(self, queue, now_ns)
        elif engine_may_try_among(self, questions, queue, now_ns):
            engine_try(self, queue, now_ns)
        elif len(taken) == 1 or (
            not (<Master>self.masters[questions.gate]).is_subscribed
        ):
            engine_ask(self, queue, now_ns)
        else:
            asked.append(queue)
    return engine_send_questions(self, asked, questions.gate, now_ns) if asked else 0


cdef bint engine_may_try_among(
    Engine self, Questions questions, WaitQueue queue, int64_t now_ns
) noexcept:
    # The gates in turn, and so do the queues of each; at first not all at once.
    cdef int64_t every_ns = len(self.queues.questions) * <int64_t>TRY_AMONG_NS
    if (
        now_ns - questions.tried_ns < every_ns
        or now_ns - self.queues.tried_ns < TRY_AMONG_NS - QUESTIONS_EVERY_NS
        or not engine_may_try(queue, now_ns)
    ):
        return False
    questions.tried_ns = self.queues.tried_ns = now_ns
    return True


cdef int engine_send_questions(
    Engine self, list queues, int gate, int64_t now_ns
) except -1:
    cdef WaitQueue queue
    cdef Round head, ask
    cdef Turn of_head, turn = turn_new(now_ns, False)
    cdef Terms terms = None
    cdef list arguments = []
    cdef list asked = []
    for queue in queues:
        head = wait_queue_head(queue)
        if head is None:      # a finalizer has opened it, or it was handed a lease
            continue
        of_head = <Turn>head.turn
        terms = head.terms
        arguments += engine_question_arguments(
            self, queue, head, of_head, gate, now_ns
        )
        asked.append((queue, of_head.number))
    if terms is None:
        return 0
    turn.arguments = tuple(arguments)
    keys = tuple([(<WaitQueue>each[0]).resource for each in asked])
    ask = engine_question(self, OPERATION_ASK_TURN, keys[0], turn, terms)
    ask.keys = keys
    ask.kind = KIND_SEVERAL
    turn.asked = asked
    for queue, _ in asked:
        head = wait_queue_head(queue)
        if head is not None:
            engine_note_asked(self, queue, head, gate, now_ns)
    return engine_send_to_gate(self, ask, gate, False, now_ns)


cdef int engine_on_asked_together(Engine self, Round ask, int64_t now_ns) except -1:
    # A queue that is refused is asked about by itself, and its callers poll then. A
    # refusal of the whole may be that of one, or of all.
    cdef WaitQueue queue
    cdef Py_ssize_t at = 0
    cdef list answers = None
    if ask.verdict_code == VERDICT_WON:
        answers = ask.details[ask.gate]
        if len(answers) != 4 * len(ask.keys):
            return 0
    elif not (ask.cells[ask.gate].vote == VOTE_FAILED and (
        ask.cells[ask.gate].answered_us
    )):
        return 0
    for queue, number in (<Turn>ask.turn).asked:
        if queue.opened is None and queue.rounds and (
            answers is None or answers[at] == TURN_REFUSED
        ):
            engine_ask(self, queue, now_ns)
        elif answers is not None:
            engine_on_answer(
                self, queue, number, ask.gate, answers[at:at + 4], now_ns
            )
        at += 4
    return 0


cdef int engine_on_asked(Engine self, Round ask, int64_t now_ns) except -1:
    # The gate has answered ASK_TURN, or has not.
    cdef Turn turn = <Turn>ask.turn
    cdef WaitQueue queue = turn.queue
    if ask.keys is not None:
        return engine_on_asked_together(self, ask, now_ns)
    if ask.verdict_code != VERDICT_WON:
        if ask.cells[ask.gate].vote == VOTE_FAILED and (
            ask.cells[ask.gate].answered_us and ask.gate == queue.gate
        ):
            engine_on_queue_refused(self, queue, ask, now_ns)
        return 0
    return engine_on_answer(
        self, queue, turn.next_number, ask.gate, ask.details[ask.gate], now_ns
    )


cdef int engine_on_answer(
    Engine self, WaitQueue queue, int64_t number, int gate, list answer, int64_t now_ns
) except -1:
    # Of one queue; it may have moved.
    cdef int64_t left_ms
    if answer[0] != TURN_MOVED:
        return engine_take_answer(self, queue, number, answer, now_ns)
    left_ms = min(max(<object>answer[1], MOVED_LEAST_MS), MOVED_MOST_MS)
    return engine_on_moved(
        self, queue.resource, gate, now_ns + left_ms * NS_PER_MS, now_ns
    )


cdef int engine_on_moved(
    Engine self, bytes resource, int gate, int64_t until_ns, int64_t now_ns
) except -1:
    # The gate has replied that the queue is not there. Nor is our entry: who waits goes
    # to the next; an open turn goes on.
    cdef WaitQueue queue = self.queues.by_resource.get(resource)
    wait_queues_on_moved(self.queues, resource, gate, until_ns, now_ns)
    if queue is None or queue.gate != gate:
        return 0
    queue.is_entered = queue.is_first = queue.is_unanswered = False
    queue.noted = None
    if queue.opened is not None or not queue.rounds:
        return 0
    if len(self.queues.by_resource) <= MARKED_MOST:
        return engine_ask(self, queue, now_ns)
    return engine_ask_soon(self, queue, now_ns)
