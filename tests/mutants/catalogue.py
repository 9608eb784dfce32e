"""The mutants: mistakes that lock libraries were made with, to be put into our source.

Each edit replaces a text that stands in its file exactly once; where it does not any
more, the mutant is stale and has to be written anew, and tests/mutants/test_mutants.py
says so.
"""

from __future__ import annotations

from hashlib import sha1
from typing import NamedTuple

from fastredlock._options import scripts


class Edit(NamedTuple):
    """Replace `old`, which the file has once, by `new`."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """One mistake; `tests`: where it should be caught, the likeliest first."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


ROUND = ("tests/unit/test_round.py", "tests/unit/test_engine.py", "tests/sim")
OUTAGES = ("tests/behaviour/test_outages.py", "tests/behaviour/test_pauses.py")
REPLIES = ("tests/unit/test_engine.py", "tests/sim", *OUTAGES)
ROLL_BACK = "return engine_queue(self, release, release.may_hold, True, now_ns)"
ELSEWHERE = ("tests/faults/test_waiting_elsewhere.py",)
ASKED_AGAIN = ("tests/unit/test_in_flight.py",)
LEASE = (
    "tests/unit/test_lease.py",
    "tests/unit/test_engine.py",
    "tests/behaviour/test_release.py",
)
GIVEN_UP = "tests/faults/test_given_up.py"
RELEASED = ("tests/unit/test_engine_released.py", "tests/behaviour/test_skipping.py")
KEEPING = ("tests/unit/test_keeping.py",)
FOREIGN_CALLS = ("tests/unit/test_foreign_calls.py",)
BESIDE_KEEPERS = ("tests/behaviour/test_keeping_foreign_code.py",)
INTERRUPTED_THREADS = ("tests/faults/test_interrupted_threads.py",)
OBSERVER = ("tests/behaviour/test_observer.py",)
COHORT = "src_cython/round/local.pyx"
COHORTS = ("tests/behaviour/test_cohort.py",)
REST, RESTS = "src_cython/round/local.pyx", "src_cython/waiting/turns.pyx"
LINGER = ("tests/behaviour/test_linger.py",)
WAITERS = ("tests/sim/test_waiters.py",)
QUEUES = ("tests/unit/test_wait_queue.py", "tests/fuzz/test_queues.py")
MODEL = ("tests/sim/test_model.py",)
REENTRY = ("tests/behaviour/test_reentry.py",)
LEADING = ("tests/behaviour/test_leading.py",)
RAISING = ("tests/unit/test_python_calls.py", "tests/fuzz/test_raising.py")
NATIVE = ("tests/unit/test_native.py",)
RELEASE_AT_GATE = ("tests/unit/test_release_at_gate.py",)
TAKE_TURN_SHA1_ANEW = Edit(
    "fastredlock/_options/scripts.py",
    "# Leave the queue. A turn that was not used goes to the next. ARGV: process. Sent "
    "as\n",
    "import hashlib\n\nTAKE_TURN_SHA1 = hashlib.sha1(TAKE_TURN).hexdigest().encode()\n",
)

MANY = ("tests/unit/test_waiting_for_many.py",)
SLOTS = ("tests/unit/test_slots.py",)
SIM_SLOTS = ("tests/sim/test_slots.py",)
RATES = ("tests/unit/test_slots.py", "tests/behaviour/test_rate.py")
SLOW_GATES = ("tests/unit/test_waiting_at_slow_gates.py",)

FENCING = ("tests/unit/test_fencing.py",)
FENCE_SCRIPTS = ("tests/behaviour/test_fence_scripts.py",)
FENCED = "fastredlock/_options/fence_scripts.py"
FENCE_SHA1S_ANEW = Edit(
    FENCED,
    "# By the names that `Scripts` has for them.\n",
    "import hashlib\n\nACQUIRE_ALL_SHA1, ACQUIRE_AGAIN_SHA1, TAKE_TURN_SHA1, "
    "WRITE_FENCE_SHA1 = (\n"
    "    hashlib.sha1(each).hexdigest().encode()\n    for each in "
    "(ACQUIRE_ALL, ACQUIRE_AGAIN, TAKE_TURN, WRITE_FENCE)\n)\n",
)

MUTANTS = (
    Mutant(
        "wall clock instead of monotonic",
        (
            Edit(
                "src_cython/base.pyx",
                "clock_gettime(SYSTEM_CLOCK, &now)",
                "clock_gettime(0, &now)",
            ),
        ),
        ("tests/unit/test_engine.py", "tests/behaviour/test_expiry.py"),
    ),
    Mutant(
        "a lease with two releases is handed on",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "    lease.is_shown |= lease.is_released\n",
                "",
            ),
        ),
        ("tests/behaviour/test_cohort.py",),
    ),
    Mutant(
        "no validity check",
        (
            Edit(
                "src_cython/round/round.pyx",
                "    if round_valid_until_ns(self) <= now_ns:",
                "    if False and round_valid_until_ns(self) <= now_ns:",
            ),
        ),
        ROUND,
    ),
    Mutant(
        "validity not checked again before the return",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "    round_confirm(round, now_ns)\n",
                "",
            ),
        ),
        ("tests/unit/test_engine.py", "tests/unit", "tests/sim"),
    ),
    Mutant(
        "no drift taken off the validity",
        (
            Edit(
                "src_cython/round/round.pyx",
                "self.terms.ttl_ms * NS_PER_MS - self.terms.drift_ns",
                "self.terms.ttl_ms * NS_PER_MS",
            ),
        ),
        ROUND,
    ),
    Mutant(
        "quorum of the reachable",
        (
            Edit(
                "src_cython/round/round.pyx",
                "    elif granted >= round_quorum(self):\n",
                "    elif 2 * granted > self.master_count - self.counts[3]:\n",
            ),
            Edit(
                "src_cython/round/round.pyx",
                "    elif granted + pending < round_quorum(self):\n",
                "    elif pending == 0:\n",
            ),
        ),
        (*ROUND, *OUTAGES),
    ),
    Mutant(
        "SET without NX",
        (
            Edit(
                "src_cython/protocol/commands.pyx",
                r'b"*6\r\n" if ttl_ms',
                r'b"*5\r\n" if ttl_ms',
            ),
            Edit(
                "src_cython/protocol/commands.pyx",
                r'    buffer_put(out, b"$2\r\nNX\r\n", 8)',
                "    pass",
            ),
        ),
        ("tests/unit/test_command.py", "tests/behaviour/test_exclusion.py"),
    ),
    Mutant(
        "DEL without token check",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                "b'if redis.call(\"get\",KEYS[1])==ARGV[1] then '\n"
                "    b'return redis.call(\"del\",KEYS[1]) else return 0 end'\n",
                "b'return redis.call(\"del\",KEYS[1])'\n",
            ),
            Edit(
                "fastredlock/_options/scripts.py",
                'RELEASE_SHA1 = b"79b954ef3863314d4ff2324b4a520053b6dcc018"',
                "import hashlib\n"
                "RELEASE_SHA1 = hashlib.sha1(RELEASE).hexdigest().encode()",
            ),
        ),
        ("tests/behaviour/test_release.py", "tests/behaviour/test_expiry.py"),
    ),
    Mutant(
        "extend re-creates a lost key",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                'b\'return redis.call("pexpire",KEYS[1],ARGV[2]) else return '
                "held and 0 or 2 end'\n",
                "b'return redis.call(\"pexpire\",KEYS[1],ARGV[2]) else return '\n"
                '    b\'redis.call("set",KEYS[1],ARGV[1],"NX","PX",ARGV[2]) \'\n'
                "    b'and 1 or 0 end'\n",
            ),
            Edit(
                "fastredlock/_options/scripts.py",
                'EXTEND_SHA1 = b"ed30988115d9849da791d33d434d0807403c478a"',
                "import hashlib\n"
                "EXTEND_SHA1 = hashlib.sha1(EXTEND).hexdigest().encode()",
            ),
        ),
        ("tests/behaviour/test_extend.py",),
    ),
    Mutant(
        "extend counts after the validity is over",
        (
            Edit(
                "fastredlock/_locking/lease.py",
                "is_in_time = self._is_adopted() or "
                "round.closed_ns < self._valid_until_ns",
                "is_in_time = True",
            ),
        ),
        ("tests/unit/test_lease.py", "tests/unit/test_engine.py"),
    ),
    Mutant(
        "connection reused after a timeout without counting",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "    # The entry first: bytes without one would shift every later "
                "reply.\n",
                "    cdef InFlightEntry late\n"
                "    while self.in_flight.count and (\n"
                "        in_flight_at(self.in_flight, 0) is not None\n"
                "    ) and in_flight_at(self.in_flight, 0).verdict_code != "
                "VERDICT_OPEN:\n"
                "        in_flight_pop(self.in_flight, &late)\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "late reply voted to the newest entry",
        (
            Edit(
                "src_cython/master/in_flight.pyx",
                "    oldest[0] = self.entries[self.first]\n"
                "    self.first = (self.first + 1) & (self.capacity - 1)\n"
                "    self.count -= 1\n",
                "    self.count -= 1\n"
                "    oldest[0] = self.entries[\n"
                "        (self.first + self.count) & (self.capacity - 1)]\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "overdue connection never given up",
        (
            Edit(
                "src_cython/master/in_flight.pyx",
                "    if oldest.sent_ns < polled_before_ns:\n",
                "    if oldest.sent_ns < 0:\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "lease handed on after its stay",
        (Edit(RESTS, "now_ns - taken.opened_ns > self.cohort_ns or not (", "not ("),),
        COHORTS,
    ),
    Mutant(
        "lease handed on with less validity than a round would give",
        (
            Edit(
                COHORT,
                "terms.ttl_ms * NS_PER_MS - terms.drift_ns - terms.timeout_ns",
                "0",
            ),
        ),
        COHORTS,
    ),
    Mutant(
        "lease handed on of a longer ttl than its next caller asks for",
        (Edit(COHORT, "        or taken.terms.ttl_ms > terms.ttl_ms\n", ""),),
        COHORTS,
    ),
    Mutant(
        "failures of a master counted with each hand-over",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "    waiter, next.waiter = next.waiter, None\n",
                "    engine_count_failures(self, next)\n"
                "    waiter, next.waiter = next.waiter, None\n",
            ),
        ),
        COHORTS,
    ),
    Mutant(
        "lease handed on whose token was shown",
        (Edit(COHORT, " or taken.is_shown\n", "\n"),),
        COHORTS,
    ),
    Mutant(
        "lease handed on that was extended",
        (
            Edit(
                "src_cython/calls/fields.pyx", "taken.lease_state is not None or (", "("
            ),
            Edit(
                COHORT,
                "taken.lease_state is not None or taken.extensions\n"
                "        or not kind",
                "not kind",
            ),
        ),
        COHORTS,
    ),
    Mutant(
        "token left with the lease that gave it away",
        (Edit(COHORT, "    taken.token = HANDED_ON\n", ""),),
        COHORTS,
    ),
    Mutant(
        "key of a lease that was handed on left to its first",
        (Edit(COHORT, "    next.may_hold = taken.may_hold\n", ""),),
        COHORTS,
    ),
    Mutant(
        "leader that was handed a lease sleeps on",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "    ):      # it leads, and sleeps\n        engine_rouse(self)\n",
                "    ):      # it leads, and sleeps\n        pass\n",
            ),
        ),
        COHORTS,
    ),
    Mutant(
        "callers that came in a stay unknown to the gate at its end",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "        engine_end_stay(self, release, now_ns)\n",
                "",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "key rests for longer than its lease lingers",
        (Edit(REST, "min(now_ns + terms.linger_ns, (\n", "max(0, (\n"),),
        LINGER,
    ),
    Mutant(
        "key rests for longer than it serves",
        (
            Edit(
                REST,
                "round_valid_until_ns(taken) - round_validity_at_worst_ns(terms)",
                "now_ns + terms.linger_ns",
            ),
            Edit(
                COHORT,
                "    return round_valid_until_ns(taken) - now_ns >= ",
                "    return NEVER_NS > ",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "key at rest given to a caller that asks for a shorter ttl",
        (Edit(COHORT, "        or taken.terms.ttl_ms > terms.ttl_ms\n", ""),),
        LINGER,
    ),
    Mutant(
        "key rests whose token was shown",
        (Edit(COHORT, " or taken.is_shown\n", "\n"),),
        LINGER,
    ),
    Mutant(
        "key at rest given to two callers",
        (
            Edit(
                RESTS,
                "    rest.is_at_rest = False\n    round_hand_on",
                "    round_hand_on",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "recall of a key at rest ignored",
        (
            Edit(
                RESTS,
                "        rest = self.rests.get(resource)\n",
                "        rest = None\n",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "recall of a key in use forgotten",
        (
            Edit(
                RESTS,
                "        resource = push[len(RECALL):]\n"
                "        engine_note_contended(self, resource, now_ns)\n",
                "        resource = push[len(RECALL):]\n",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "refused caller that does not wait recalls nothing",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "            engine_recall(self, round, now_ns)\n",
                "            pass\n",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "key at rest left at the end",
        (
            Edit(
                "src_cython/engine/ending.pyx",
                "    engine_end_rests(self, now_ns)\n",
                "",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "token that was given to adopt() changed where keys rest",
        (
            Edit(
                "src_cython/engine/engine.pyx",
                "        adopted.token = token      "
                "# as it is, also where ours begin with our name\n",
                "",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "key at rest left where its connections are cut",
        (
            Edit(
                RESTS,
                "    if self.deaf_epoch != self.counters.deaf_epoch:\n",
                "    if False:\n",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "key at rest recalled at its gate alone",
        (
            Edit(
                RESTS,
                "        if refused.cells[master.index].vote == VOTE_TAKEN and (\n",
                "        at = engine_gate(self, refused.resource, now_ns)\n"
                "        if master.index == at and (\n",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "key rests before anybody reads recalls",
        (
            Edit(
                RESTS,
                "    return self.driver is not None and self.watcher is not None\n",
                "    return self.watcher is not None\n",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "key at rest broken and not recalled",
        (
            Edit(
                "fastredlock/_locking/breaking.py",
                "token is not None and lingers(token) and hash_of",
                "False and hash_of",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "key at rest left by a task that had not begun",
        (
            Edit(
                "fastredlock/_locking/resting.py",
                "    if task.cancelled():\n",
                "    if False:\n",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "key rests in a loop that ends",
        (
            Edit(
                "fastredlock/_locking/resting.py",
                "    if calls is None or calls.cancelling():",
                "    if calls is None:",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "key at rest kept by a forked child",
        (Edit("src_cython/engine/pass.pyx", "    self.rests = {}\n", ""),),
        LINGER,
    ),
    Mutant(
        "key at rest in the way of a caller that wants it otherwise",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "        engine_replace_rests(self, work, now_ns)\n",
                "        pass\n",
            ),
        ),
        LINGER,
    ),
    Mutant(
        "entry of the last of a cohort left behind another's",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                'if leaving then redis.pcall("zrem", queue, leaving) end\n',
                "",
            ),
        ),
        COHORTS,
    ),
    Mutant(
        "block under a key prefix not found again",
        (
            Edit(
                "fastredlock/_locking/entered.py",
                "keys = [prefix + one for one",
                "keys = [one for one",
            ),
        ),
        ("tests/behaviour/test_reentry.py",),
    ),
    Mutant(
        "a second write that no time ends",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "    engine_note_time(self, round.deadline_ns)"
                "      # it had nothing in flight until now\n",
                "",
            ),
        ),
        FENCING,
    ),
    Mutant(
        "our own standing still taken for a master's silence",
        (
            Edit(
                "src_cython/master/in_flight.pyx",
                "    if oldest.sent_ns < polled_before_ns:\n",
                "    if True:\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "token forgotten before the release is confirmed",
        (
            Edit(
                "fastredlock/_locking/lease.py",
                "if self._status is not None and self._status is not UNKNOWN:",
                "if self._status is not None:",
            ),
        ),
        LEASE,
    ),
    Mutant(
        "release of a lost connection forgotten",
        (
            Edit(
                "src_cython/master/in_flight.pyx",
                "        deferred_add(self, round, entry.key_until_ns, True)\n",
                "        pass\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "release deferred for a ttl from its own beginning",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "now_ns + each.release.terms.ttl_ms * NS_PER_MS",
                "each.release.opened_ns + each.release.terms.ttl_ms * NS_PER_MS",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "connection given up without the releases of its open acquires",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "        master_undo_open(self)\n",
                "        pass\n",
            ),
        ),
        (GIVEN_UP,),
    ),
    *(
        Mutant(f"end in a back-off: {name}", (Edit(*edit),), (GIVEN_UP,))
        for name, edit in {
            "close() and exit drop what is deferred": (
                "src_cython/engine/ending.pyx",
                "    engine_open_deferred_at_end(self, now_ns)\n",
                "",
            ),
            "they wait for it, and so do not try": (
                "src_cython/engine/masters.pyx",
                "        master.retry_at_ns = min(master.retry_at_ns, now_ns)\n",
                "        pass\n",
            ),
            "a client that is dropped drops it": (
                "src_cython/engine/ending.pyx",
                "        engine_open_deferred_at_end(self, clock_ns()) or",
                "        engine_open_deferred(self, clock_ns()) or",
            ),
            "a child that ends drops it": (
                "src_cython/drivers/blocking.pyx",
                "is_opening = engine_open_deferred_at_end(self, clock_ns())",
                "is_opening = False",
            ),
        }.items()
    ),
    Mutant(
        "keeper sleeps on behind the last release",
        (
            Edit(
                "fastredlock/_locking/keeping/keeper.py",
                "if next_ns is None or not keeper.kept:",
                "if next_ns is None:",
            ),
        ),
        ("tests/behaviour/test_keeping.py",),
    ),
    Mutant(
        "keeper of a loop sleeps on behind the last release",
        (
            Edit(
                "fastredlock/_locking/keeping/loop_keeper.py",
                "        self._kept.discard(kept)\n",
                "        return\n",
            ),
        ),
        ("tests/behaviour/test_keeping_bodies.py",),
    ),
    *(
        Mutant(f"not told: {name}", (Edit(*edit),), tests)
        for name, edit, tests in (
            (
                "a timeout that went on connecting",
                (
                    "src_cython/engine/pass.pyx",
                    "        if round.left_ns < waited_ns:\n",
                    "        if False:\n",
                ),
                ("tests/unit/test_admission.py",),
            ),
            (
                "a master that was not connected in time",
                (
                    "src_cython/master/connection.pyx",
                    '            reason = f"not connected in time: {reason}"\n',
                    "            pass\n",
                ),
                ("tests/unit/test_admission.py",),
            ),
            (
                "a master that was well, and is PENDING in an outage",
                (
                    "fastredlock/_reports/votes.py",
                    "NOT_AWAITED if state is MasterState.READY else text or reason",
                    "text or reason",
                ),
                ("tests/unit/test_votes.py",),
            ),
        )
    ),
    Mutant(
        "deferred release left to a next call",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "    engine_open_deferred(self, now_ns)\n",
                "",
            ),
        ),
        ("tests/faults/test_given_up.py",),
    ),
    Mutant(
        "share of an address not noted as due",
        (
            Edit(
                "src_cython/master/master.pyx",
                "    counters_note_due(self.counters, at_ns)\n",
                "",
            ),
        ),
        ("tests/faults/test_given_up.py",),
    ),
    Mutant(
        "release forgotten once its ttl is over, though the server was frozen",
        (
            Edit(
                "src_cython/master/in_flight.pyx",
                "    waiting.key_until_ns = key_until_ns\n",
                "    waiting.key_until_ns = min(\n"
                "        key_until_ns, release.deadline_ns + release.terms.ttl_ms * "
                "NS_PER_MS\n    )\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "lost connection left to what it still executes",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "    master_kill_lost(self, now_ns)\n",
                "",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "connection of another killed: ids of a server that is another now",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "    if self.lost_run_id is None or "
                "self.lost_run_id != self.server_info.run_id:\n",
                "    if False:\n",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "lease lost by the vote of one, another silent, of three",
        (
            Edit(
                "src_cython/round/round.pyx",
                "self.master_count - self.counts[VOTE_TAKEN] < round_quorum(self)\n",
                "answered >= round_quorum(self)\n",
            ),
        ),
        ("tests/unit/test_round.py",),
    ),
    Mutant(
        "error to the second of two commands taken for an answer to the first",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "    if entry.writes_fence or entry.is_second and (\n",
                "    if entry.writes_fence or entry.is_second and (\n"
                "        vote != VOTE_FAILED and\n",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "connection used while its server refuses everything",
        (
            Edit(
                "src_cython/protocol/handshake.pyx",
                "            else text_is_of_now(reply_error(reply))\n",
                "            else False\n",
            ),
        ),
        (*ASKED_AGAIN, "tests/unit/test_handshake.py"),
    ),
    Mutant(
        "release that a busy server refused is not sent again",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "        if text_is_of_now(error):\n",
                "        if False:\n",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "round failed at once where its connection was cut",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "        self, reason, self.state_code == MASTER_READY, now_ns\n",
                "        self, reason, False, now_ns\n",
            ),
        ),
        (*ASKED_AGAIN, "tests/behaviour/test_lost_connections.py"),
    ),
    Mutant(
        "acquire repeated by a plain SET, which our own key refuses",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                "if held and held ~= ARGV[1] then",
                "if held then",
            ),
            Edit(
                "fastredlock/_options/scripts.py",
                scripts.ACQUIRE_AGAIN_SHA1.decode(),
                sha1(
                    scripts.ACQUIRE_AGAIN.replace(
                        b"if held and held ~= ARGV[1] then", b"if held then"
                    )
                ).hexdigest(),
            ),
        ),
        ("tests/behaviour/test_scripts_of_all.py",),
    ),
    Mutant(
        "acquire with a token that others use repeated as one that may be done",
        (
            Edit(
                "src_cython/master/in_flight.pyx",
                "        round.token_uses is not None and round.operation_code",
                "        False and round.operation_code",
            ),
        ),
        ("tests/behaviour/test_tokens.py",),
    ),
    Mutant(
        "release repeated after a lost reply counted as gone",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "    if entry.is_second and vote == VOTE_TAKEN and (\n",
                "    if False and (\n",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "roll-back without its script's source",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                ROLL_BACK,
                ROLL_BACK.replace("True", "False"),
            ),
        ),
        ("tests/behaviour/test_lost_connections.py", *REPLIES),
    ),
    Mutant(
        "round goes on beyond its caller's timeout",
        (
            Edit(
                "src_cython/round/round.pyx",
                "    if 0 < self.left_ns < self.terms.timeout_ns:\n",
                "    if False:\n",
            ),
        ),
        ("tests/unit/test_round.py", "tests/behaviour/test_long_pauses.py"),
    ),
    Mutant(
        "round timeout grows with the ttl without end",
        (
            Edit(
                "fastredlock/_options/settings.py",
                "min(share_ns, LONGEST_ROUND_TIMEOUT_NS)",
                "share_ns",
            ),
        ),
        ("tests/unit/test_settings.py",),
    ),
    Mutant(
        "silent master kept for as long as it says nothing",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "        master.in_flight.count >= IN_FLIGHT_MOST\n",
                "        False\n",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "no roll-back",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "or round.is_rolled_back or not round.may_hold",
                "or True",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "no roll-back where a master did not answer",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                ROLL_BACK,
                "for i in range(self.master_count):\n"
                "        if round.cells[i].vote != VOTE_GRANTED:\n"
                "            release.may_hold &= ~(<uint64_t>1 << i)\n"
                f"    {ROLL_BACK}",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "release on another connection",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "    if master.state_code != MASTER_READY:\n"
                "        return master_on_unsent(master, round, entry, now_ns)",
                "    if round.operation_code == OPERATION_RELEASE and "
                "master.in_flight.count:\n"
                '        master_on_lost(master, "released elsewhere", now_ns)\n'
                "    if master.state_code != MASTER_READY:\n"
                "        return master_on_unsent(master, round, entry, now_ns)",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "what an observer raises reaches the caller",
        (
            Edit(
                "src_cython/calls/observer.pyx",
                "        self.log(event, raised)\n",
                "        raise\n",
            ),
        ),
        OBSERVER,
    ),
    Mutant(
        "the end of a lease told twice",
        (
            Edit(
                "fastredlock/_locking/observing.py",
                "        return notices.pop()\n",
                "        return True\n",
            ),
        ),
        OBSERVER,
    ),
    Mutant(
        "a release after the validity told as one in time",
        (
            Edit(
                "fastredlock/_locking/observing.py",
                "if lease._status is GONE or left_ns == 0:",
                "if False:",
            ),
        ),
        OBSERVER,
    ),
    Mutant(
        "failures of masters not counted",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "    if round.counts[VOTE_FAILED] + round.counts[VOTE_SILENT] > 0:\n",
                "    if False:\n",
            ),
        ),
        ("tests/behaviour/test_stats.py",),
    ),
    Mutant(
        "retry re-uses the token",
        (
            Edit(
                "fastredlock/_locking/attempt.py",
                "    while True:\n",
                "    token = new_token()\n    while True:\n",
            ),
            Edit(
                "fastredlock/_locking/attempt.py",
                "            new_token(),\n",
                "            token,\n",
            ),
        ),
        ("tests/unit/test_attempt.py", "tests/behaviour/test_tokens.py"),
    ),
    Mutant(
        "interrupted round not rolled back",
        (
            Edit(
                "src_cython/drivers/blocking.pyx",
                "    except BaseException:\n        blocking_abandon(engine, work)\n",
                "    except BaseException:\n",
            ),
            Edit(
                "src_cython/calls/acquire.pyx",
                "        if self.round is not None:\n"
                "            call_abandon(self, self.round)",
                "        pass",
            ),
        ),
        ("tests/behaviour/test_signals.py",),
    ),
    Mutant(
        "many at once not undone when one failed",
        (
            Edit(
                "src_cython/round/round.pyx",
                "    return self.failure is not None and batch_is_given_up(self)\n",
                "    return False\n",
            ),
            Edit(
                "src_cython/calls/lease.pyx",
                "            call_abandon(self, self.each.rest())\n",
                "            pass\n",
            ),
        ),
        ("tests/unit/test_batch.py", "tests/behaviour/test_each.py"),
    ),
    Mutant(
        "all of many rounds under way at once",
        (
            Edit(
                "src_cython/round/round.pyx",
                "self.under_way >= self.window\n",
                "self.under_way < 0\n",
            ),
        ),
        ("tests/unit/test_batch.py",),
    ),
    Mutant(
        "forked child speaks on its parent's connections",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "    return 0 if self.generation == current_generation else "
                "engine_reset_after_fork(self)\n",
                "    return 0\n",
            ),
        ),
        ("tests/behaviour/test_fork.py",),
    ),
    Mutant(
        "lease valid in a forked child",
        (
            Edit(
                "fastredlock/_locking/lease.py",
                "            return 0.0  # a forked child has none of its parent's "
                "leases",
                "            pass",
            ),
        ),
        ("tests/behaviour/test_fork.py", "tests/unit/test_lease.py"),
    ),
    Mutant(
        "error reply counted as taken",
        (
            Edit(
                "src_cython/protocol/replies.pyx",
                "else VOTE_TAKEN\n    return VOTE_FAILED\n",
                "else VOTE_TAKEN\n    return VOTE_TAKEN\n",
            ),
        ),
        ("tests/unit/test_reply.py", "tests/unit/test_engine.py"),
    ),
    Mutant(
        "NOSCRIPT not repeated",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "if is_unknown and not entry.is_by_source:",
                "if False:",
            ),
        ),
        ("tests/behaviour/test_release.py", *REPLIES),
    ),
    Mutant(
        "release finished at quorum though scripts are unknown",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "    if not release.is_repeated:\n",
                "    if True:\n",
            ),
        ),
        ("tests/unit/test_engine.py", "tests/unit/test_in_flight.py"),
    ),
    Mutant(
        "repeated release waits for a frozen master",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "        if release in master.in_flight.unanswered:\n",
                "        if True:\n",
            ),
        ),
        ("tests/unit/test_engine.py", "tests/behaviour/test_release.py"),
    ),
    Mutant(
        "cut release does not wait for the next connection",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "        if release in master.in_flight.unanswered:\n",
                "        if False:\n",
            ),
        ),
        ("tests/unit/test_engine.py",),
    ),
    Mutant(
        "release that reports on each closed at quorum",
        (
            Edit(
                "src_cython/round/round.pyx",
                "    elif self.needs_all and pending > 0:\n        return\n",
                "",
            ),
        ),
        ("tests/behaviour/test_breaking.py",),
    ),
    Mutant(
        "gate found by the order in which the masters are listed",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "in enumerate(sorted(by_address))",
                "in enumerate(by_address)",
            ),
        ),
        ("tests/behaviour/test_waiting_in_turn.py",),
    ),
    Mutant(
        "acquire by a script repeated behind its release",
        (
            Edit(
                "src_cython/round/round.pyx",
                "    return not operation_is("
                "self.operation_code, OPERATION_GIVES_TTL) or (\n",
                "    return True or (\n",
            ),
        ),
        ("tests/unit/test_engine_several_keys.py",),
    ),
    Mutant(
        "key that is taken looked for after the first is set",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                """1 then return 0 end
end
for _, key in ipairs(KEYS) do redis""",
                """1 then return 0 end
  redis""",
            ),
            Edit(
                "fastredlock/_options/scripts.py",
                '"px", ARGV[2]) end\nreturn 1"""\nACQUIRE_ALL_SHA1',
                '"px", ARGV[2])\nend\nreturn 1"""\nACQUIRE_ALL_SHA1',
            ),
        ),
        ("tests/behaviour/test_scripts_of_all.py",),
    ),
    Mutant(
        "no release is kept ready for a time without memory",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "        self.spare = Round.__new__(Round)\n",
                "        pass\n",
            ),
        ),
        ("tests/faults/test_callers.py",),
    ),
    Mutant(
        "release of the first key only",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "    release.may_hold = lease.may_hold\n",
                "    release.may_hold = lease.may_hold\n    release.keys = None\n",
            ),
        ),
        ("tests/unit/test_engine_several_keys.py", "tests/sim"),
    ),
    Mutant(
        "extend of the first key only",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "    extension.lease_state = lease\n",
                "    extension.lease_state = lease\n    extension.keys = None\n",
            ),
        ),
        ("tests/unit/test_engine_several_keys.py", "tests/sim"),
    ),
    Mutant(
        "a lease that still stands is called lost",
        (
            Edit(
                "fastredlock/_locking/lease.py",
                "            if left > 0.0 or self._is_adopted():\n",
                "            if False:\n",
            ),
        ),
        ("tests/unit/test_lease_extend.py", "tests/behaviour/test_extend.py"),
    ),
    Mutant(
        "extensions of many left out after one that was not confirmed",
        (
            Edit(
                "src_cython/round/round.pyx",
                "        and self.failure.operation_code == OPERATION_ACQUIRE\n",
                "        and self.failure.operation_code != OPERATION_RELEASE\n",
            ),
        ),
        ("tests/unit/test_batch.py", "tests/behaviour/test_extend_each.py"),
    ),
    Mutant(
        "interrupted extension of many bounds the later ones",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "        extension_forget(under_way, extension)\n",
                "        pass\n",
            ),
        ),
        ("tests/unit/test_extend_each.py", "tests/behaviour/test_extend_each.py"),
    ),
    Mutant(
        "with block gives back the lease of the last to enter",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "        if entry[0] == caller:\n",
                "        if True:\n",
            ),
        ),
        ("tests/unit/test_lock_entries.py", "tests/behaviour/test_lock_entries.py"),
    ),
    Mutant(
        "a block of a thread is its next caller's",
        (
            Edit(
                "fastredlock/_locking/entered.py",
                "or is_on_stack(frame)):",
                "or True):",
            ),
        ),
        ("tests/behaviour/test_whose_block.py",),
    ),
    Mutant(
        "tasks of one loop are one caller",
        (
            Edit(
                "src_cython/calls/fields.pyx",
                "    if task is not None:\n        return thread,",
                "    if False:\n        return thread,",
            ),
        ),
        ("tests/behaviour/test_whose_block.py",),
    ),
    Mutant(
        "a generator that ends elsewhere leaves the entry of another",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "        if <PyObject *>entry[2] == frame:\n",
                "        if False:\n",
            ),
        ),
        ("tests/behaviour/test_whose_block.py",),
    ),
    Mutant(
        "entry that comes while another is left is lost",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                " and len(entries) == 1 and entries[0] is entry:\n",
                ":\n",
            ),
        ),
        ("tests/unit/test_lock_entries.py",),
    ),
    Mutant(
        "interrupted entry of a lock object kept",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "            lock_take_off(self, entry)\n",
                "            pass\n",
            ),
        ),
        ("tests/unit/test_lock_entries.py", "tests/faults/test_callers.py"),
    ),
    Mutant(
        "decorated coroutine function runs without the lock",
        (
            Edit(
                "fastredlock/_locking/decorated.py",
                "    if is_of(inspect.iscoroutinefunction, function):\n",
                "    if False:\n",
            ),
        ),
        ("tests/unit/test_decorated.py",),
    ),
    Mutant(
        "restart guard ignored",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "if now_ns >= master.votes_from_ns or round",
                "if True or round",
            ),
        ),
        ("tests/setups/test_restart_guard.py",),
    ),
    Mutant(
        "one server with two names has two votes",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "other.identity == master.identity",
                "False",
            ),
        ),
        ("tests/setups/test_wrong_setups.py",),
    ),
    Mutant(
        "host name of a certificate not checked",
        (
            Edit(
                "fastredlock/_options/tls.py",
                "context.check_hostname = tls.check_hostname",
                "context.check_hostname = False",
            ),
        ),
        ("tests/setups/test_tls.py",),
    ),
    Mutant(
        "a line inside a reply taken for a reply",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "    if self.is_between_replies:\n",
                "    if self.state_code == MASTER_READY:\n",
            ),
        ),
        ("tests/unit/test_batch.py",),
    ),
    Mutant(
        "another run id taken for the server of before",
        (
            Edit(
                "src_cython/master/master.pyx",
                "if self.has_met and identity != self.identity:",
                "if False:",
            ),
        ),
        (
            "tests/setups/test_restart_guard.py",
            "tests/setups/test_replaced_masters.py",
        ),
    ),
    Mutant(
        "wait for a restarted master made shorter by a reconnection",
        (
            Edit(
                "src_cython/master/master.pyx",
                "    if until_ns > self.until_ns:\n",
                "    if until_ns > self.until_ns or cause is None:\n",
            ),
        ),
        ("tests/setups/test_restart_guard.py",),
    ),
    Mutant(
        "quarantine of others not kept",
        (
            Edit(
                "src_cython/master/master.pyx",
                "if mark is not None and mark.left_ms >= 0:",
                "if False:",
            ),
        ),
        (
            "tests/setups/test_restart_guard.py",
            "tests/setups/test_replaced_masters.py",
        ),
    ),
    Mutant(
        "quarantine shortened by a client with a shorter max_ttl",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                "  span = math.max(left, span)\n  quarantine(span)\n",
                "  quarantine(span)\n",
            ),
        ),
        ("tests/setups/test_replaced_masters.py",),
    ),
    Mutant(
        "marker set without a quarantine",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                "  quarantine(span)\n  redis",
                "  redis",
            ),
        ),
        ("tests/setups/test_replaced_masters.py",),
    ),
    Mutant(
        "marker refused at this moment taken for a good one",
        (
            Edit(
                "src_cython/master/master.pyx",
                "if mark is not None and mark.error is not None and "
                "not mark.is_forbidden:",
                "if False:",
            ),
        ),
        ("tests/setups/test_restart_guard.py",),
    ),
    Mutant(
        "votes of a master whose user may not release",
        (
            Edit(
                "src_cython/protocol/handshake.pyx",
                "        self.failure = self.rights.refusal()\n",
                "",
            ),
        ),
        ("tests/unit/test_handshake.py", "tests/setups/test_rights.py"),
    ),
    Mutant(
        "server without EVALSHA gets a vote",
        (
            Edit(
                "src_cython/protocol/handshake.pyx",
                '            if name != "EVALSHA" or not '
                'reply_error(reply).startswith("NOSCRIPT"):\n',
                '            if reply_error(reply).startswith("NOPERM"):\n',
            ),
        ),
        ("tests/unit/test_handshake.py", "tests/cli/test_check.py"),
    ),
    Mutant(
        "refused write not remembered by health()",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "        self.refused_until_ns = now_ns + REFUSED_NS\n",
                "        pass\n",
            ),
        ),
        ("tests/unit/test_engine.py",),
    ),
    Mutant(
        "refused write remembered though the next is granted",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "            self.refused_until_ns = 0\n",
                "            pass\n",
            ),
        ),
        ("tests/unit/test_engine.py",),
    ),
    Mutant(
        "refused write remembered for good",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "cdef int64_t REFUSED_NS = 10_000_000_000\n",
                "cdef int64_t REFUSED_NS = 10_000_000_000_000\n",
            ),
        ),
        ("tests/unit/test_engine.py",),
    ),
    Mutant(
        "server without scripts and with a native release is sent the script",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "        elif self.is_native_alone and native_replaces("
                "round, self.scripts):\n",
                "        elif False:\n",
            ),
        ),
        ("tests/setups/test_rights.py",),
    ),
    Mutant(
        "right that was taken away not noticed",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "    if not is_command or entry.key_until_ns != NEVER_NS:\n",
                "    if True:\n",
            ),
        ),
        ("tests/setups/test_rights.py",),
    ),
    Mutant(
        "key that is forbidden taken for a command",
        (
            Edit(
                "src_cython/protocol/handshake.pyx",
                "    return text_has(text, OF_COMMANDS) if",
                "    return True if",
            ),
        ),
        ("tests/unit/test_handshake.py", "tests/setups/test_rights.py"),
    ),
    Mutant(
        "NOAUTH to an unknown HELLO taken for a wrong password",
        (
            Edit(
                "src_cython/protocol/handshake.pyx",
                '    if code == "NOAUTH" and has_password:\n',
                "    if False:\n",
            ),
        ),
        ("tests/unit/test_handshake.py", "tests/setups/test_wrong_setups.py"),
    ),
    Mutant(
        "silence of a server taken for its hanging up",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "    return master_on_lost(self, reason, now_ns)\n\n\n"
                "cdef int master_on_c",
                "    return master_on_cut(self, self.reason, now_ns)\n\n\n"
                "cdef int master_on_c",
            ),
        ),
        ("tests/setups/test_wrong_setups.py",),
    ),
    Mutant(
        "work submitted again where a look after a pause has done it",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                """    if work_is_submitted(work):
        work_set_waiter(work, waiter)
        return 0
""",
                "",
            ),
            Edit(
                "src_cython/engine/pass.pyx",
                "round.is_opened or round.is_finished:      # withdrawn meanwhile\n",
                "round.is_finished:\n",
            ),
        ),
        ("tests/unit/test_engine_nested_calls.py", "tests/faults/test_processes.py"),
    ),
    Mutant(
        "garbage is collected in the middle of a pass",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "    collects = pass_begin()\n    try:\n        if self.rests:\n",
                "    collects = True\n    try:\n        if self.rests:\n",
            ),
        ),
        ("tests/unit/test_engine_nested_calls.py",),
    ),
    Mutant(
        "last reference is dropped in the middle of a pass",
        (
            Edit(
                "src_cython/base.pyx",
                "    if passes > 0 and last",
                "    if False and last",
            ),
        ),
        ("tests/unit/test_engine_nested_calls.py",),
    ),
    Mutant(
        "garbage is collected no more behind a pass",
        (Edit("src_cython/base.pyx", "        PyGC_Enable()\n", "        pass\n"),),
        ("tests/unit/test_engine_nested_calls.py",),
    ),
    Mutant(
        "session of TLS called inside of itself",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "tls.is_busy:\n        return 0\n    tls.is_busy = True\n    try:\n"
                "        while self.tls is tls and tls.u",
                "False:\n        return 0\n    tls.is_busy = True\n    try:\n"
                "        while self.tls is tls and tls.u",
            ),
        ),
        ("tests/unit/test_tls.py",),
    ),
    Mutant(
        "round opened that was withdrawn before",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "round.is_opened or round.is_finished:      # withdrawn meanwhile\n",
                "round.is_opened:\n",
            ),
        ),
        ("tests/unit/test_engine.py",),
    ),
    Mutant(
        "interrupted before the first line of __exit__",
        (
            Edit(
                "fastredlock/_locking/blocking.py",
                "    __exit__ = exit_lease\n",
                "    def __exit__(self, *raised: Any) -> None:\n"
                "        exit_lease(self, *raised)\n",
            ),
        ),
        ("tests/faults/test_callers.py",),
    ),
    Mutant(
        "interrupted before the first line of __aexit__",
        (
            Edit(
                "fastredlock/_locking/awaitable.py",
                "    __aexit__ = exit_lease\n",
                "    async def __aexit__(self, *raised: Any) -> None:\n"
                "        await exit_lease(self, *raised)\n",
            ),
        ),
        ("tests/faults/test_callers.py",),
    ),
    Mutant(
        "signals looked for while a reply is taken",
        (
            Edit(
                "src_cython/protocol/handshake.pyx",
                "            now_s, now_us = int(reply[0]), int(reply[1])\n",
                "            now_us = int(reply[0]) * NS_PER_S + int(reply[1]) * 1000\n"
                "            now_s, now_us = now_us // NS_PER_S, int(reply[1])\n",
            ),
        ),
        ("tests/unit/test_server_info.py",),
    ),
    Mutant(
        "first try that was not won taken for a lease",
        (
            Edit(
                "src_cython/calls/acquire.pyx",
                "            elif first.verdict_code == VERDICT_WON:\n",
                "            elif first.is_finished:\n",
            ),
            Edit(
                "src_cython/calls/acquire.pyx",
                "    if round.verdict_code == VERDICT_WON:\n",
                "    if round.is_finished:\n",
            ),
        ),
        ("tests/behaviour/test_exclusion.py",),
    ),
    Mutant(
        "end of a with block in C that does not look at the validity",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "        self.left_ns <= 0 or status is lease._gone\n",
                "        False\n",
            ),
        ),
        ("tests/behaviour/test_expiry.py",),
    ),
    Mutant(
        "release in C that is not sent where an exception leaves it",
        (
            Edit(
                "src_cython/calls/call.pyx",
                "        self.stage = CALL_OVER\n        self.give_up()\n"
                "        if not self.swallows(error):\n            raise\n"
                "        return None\n",
                "        raise\n",
            ),
        ),
        ("tests/behaviour/test_signals.py", "tests/faults/test_callers.py"),
    ),
    Mutant(
        "failed release forgotten where the error of a with body stands",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "= driver.current\n        return release_send(self)\n",
                "= driver.current\n"
                "        return release_send(self) if self.error is None else 0\n",
            ),
        ),
        ("tests/faults/test_callers.py",),
    ),
    Mutant(
        "call broken by a logging handler",
        (
            Edit(
                "fastredlock/_reports/log.py",
                "    except Exception:\n",
                "    except KeyError:\n",
            ),
        ),
        ("tests/behaviour/test_logging.py",),
    ),
    Mutant(
        "a look-up per attempt instead of one per name",
        (
            Edit(
                "src_cython/master/lookup.pyx",
                "if found is None or look_up_is_stale(found, now_ns):",
                "if True:",
            ),
        ),
        ("tests/faults/test_processes.py",),
    ),
    Mutant(
        "an old answer of a name look-up used",
        (
            Edit(
                "src_cython/master/lookup.pyx",
                "now_ns - self.state.done_ns > FRESH_NS",
                "False",
            ),
        ),
        ("tests/faults/test_processes.py",),
    ),
    Mutant(
        "the answer of a name look-up used for ever",
        (
            Edit(
                "src_cython/master/lookup.pyx",
                "    if look_ups.get(self.name) is self:",
                "    if False:",
            ),
        ),
        ("tests/faults/test_processes.py",),
    ),
    Mutant(
        "a greenlet taken for its thread",
        (
            Edit(
                "src_cython/drivers/leader.pyx",
                "    return self.greenlet == 0 or (",
                "    return True or (",
            ),
        ),
        ("tests/faults/test_greenlets.py",),
    ),
    Mutant(
        "signal looked at where it ended the wait alone",
        (
            Edit(
                "src_cython/drivers/leader.pyx",
                "return outcome != PY_LOCK_ACQUIRED",
                "return outcome == 2",
            ),
        ),
        ("tests/behaviour/test_signals.py",),
    ),
    Mutant(
        "a greenlet that leads sleeps in the kernel",
        (
            Edit(
                "src_cython/engine/ending.pyx",
                "cdef bint is_green = leader_is_green(self.leadership)",
                "cdef bint is_green = False",
            ),
        ),
        ("tests/faults/test_greenlets.py",),
    ),
    Mutant(
        "a greenlet that follows sleeps in the kernel",
        (
            Edit(
                "src_cython/drivers/leader.pyx",
                "self.is_green = greenlet_hub_caller() != 0",
                "self.is_green = False",
            ),
        ),
        ("tests/faults/test_greenlets.py",),
    ),
    Mutant(
        "a forked copy of a leading greenlet goes on",
        (
            Edit(
                "src_cython/drivers/greenlets.pyx",
                "    if generation != current_generation:\n",
                "    if False:\n",
            ),
        ),
        ("tests/faults/test_greenlets.py",),
    ),
    Mutant(
        "given token used again before its release is confirmed",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "bit_count(late | unsettled) < self.quorum <= ready:",
                "bit_count(late | unsettled) < 0 <= ready:",
            ),
        ),
        ("tests/unit/test_token_use.py", "tests/faults/test_given_tokens.py"),
    ),
    Mutant(
        "given token sent to a master that may still release it",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "            late |= <uint64_t>1 << master.index\n",
                "            unsettled |= <uint64_t>1 << master.index\n",
            ),
        ),
        ("tests/faults/test_given_tokens.py",),
    ),
    Mutant(
        "given token sent again while its lease is valid",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "        if token_use_is_held(use, now_ns):",
                "        if False and token_use_is_held(use, now_ns):",
            ),
        ),
        ("tests/unit/test_token_use.py", "tests/faults/test_given_tokens.py"),
    ),
    Mutant(
        "lease released although its token was used again",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "    if round_is_overused(round):\n        return engine_withhold",
                "    if False:\n        return engine_withhold",
            ),
        ),
        ("tests/faults/test_given_tokens.py",),
    ),
    Mutant(
        "python-redis-lock's id kept after a release that nobody confirmed",
        (
            Edit(
                "fastredlock/compat/redis_lock/_lock.py",
                "            self._lease, self._is_settled = None, True\n"
                "            self._renew_id()\n",
                "            self._lease, self._is_settled = None, True\n",
            ),
        ),
        ("tests/compat/common/test_late_releases.py",),
    ),
    Mutant(
        "a refused extension leaves the minority's keys",
        (
            Edit(
                "fastredlock/compat/aioredlock/algorithm.py",
                "            await self._lease_of(lock).release()  # a minority",
                "            pass  # a minority",
            ),
        ),
        ("tests/compat/aioredlock/test_held_locks.py",),
    ),
    Mutant(
        "a waiter beside a FastRedlock waits for a signal",
        (
            Edit(
                "fastredlock/compat/redis_lock/_signal.py",
                "LONGEST_WAIT if is_signalled else WITHOUT_SIGNAL",
                "LONGEST_WAIT",
            ),
        ),
        ("tests/compat/redis_lock/test_mixed_fleet.py",),
    ),
    Mutant(
        "a release of python-redis-lock's kin wakes no queue",
        (
            Edit(
                "fastredlock/compat/redis_lock/_signal.py",
                "==1 then notify() end",
                "==1 then end",
            ),
        ),
        ("tests/compat/redis_lock/test_mixed_fleet.py",),
    ),
    Mutant(
        "an override that is not run is ignored in silence",
        (
            Edit(
                "fastredlock/compat/_common/refusing.py",
                "sorted(cls._NOT_RUN & vars(cls).keys())",
                "()",
            ),
        ),
        ("tests/compat/common/test_what_users_set.py",),
    ),
    Mutant(
        "a release forgets the next holder's token",
        (
            Edit(
                "fastredlock/compat/redis/_base.py",
                "        if self._lease_of(token):  # not",
                "        local.token = None\n        if self._lease_of(token):  # not",
            ),
        ),
        ("tests/compat/redis/test_held_lock.py",),
    ),
    Mutant(
        "a failed try forgets what another thread holds",
        (
            Edit(
                "fastredlock/compat/redis_lock/_lock.py",
                "        if lease is not None:  # a failed try leaves",
                "        if True:  # a failed try leaves",
            ),
        ),
        ("tests/compat/redis_lock/test_held_lock.py",),
    ),
    Mutant(
        "an acquire forgets what another thread took since",
        (
            Edit(
                "fastredlock/compat/redis_lock/_lock.py",
                "        if self._lease is lease and (lease",
                "        if (self._lease",
            ),
        ),
        ("tests/compat/redis_lock/test_held_lock.py",),
    ),
    Mutant(
        "an id is not drawn again while its release is under way",
        (
            Edit(
                "fastredlock/compat/redis_lock/_lock.py",
                "            if is_reused or isinstance(",
                "            if isinstance(",
            ),
        ),
        ("tests/compat/redis_lock/test_held_lock.py",),
    ),
    Mutant(
        "a unix path that was changed is not read",
        (
            Edit(
                "fastredlock/_options/redis_py.py",
                'names = ("path", *CARRIED)',
                "names = CARRIED",
            ),
        ),
        ("tests/compat/common/test_shared.py",),
    ),
    Mutant(
        "a client that changed is not looked at before an acquire",
        (
            Edit(
                "fastredlock/compat/redis/_base.py",
                "            self._connect()\n            lease",
                "            lease",
            ),
        ),
        ("tests/compat/common/test_shared.py",),
    ),
    Mutant(
        "a client that changed is not looked at by python-redis-lock",
        (
            Edit(
                "fastredlock/compat/redis_lock/_lock.py",
                "        self._connect()\n        id, lease",
                "        id, lease",
            ),
        ),
        ("tests/compat/common/test_shared.py",),
    ),
    Mutant(
        "a client that changed is not looked at by redlock-py",
        (
            Edit(
                "fastredlock/compat/redlock.py",
                "        if not any(isinstance",
                "        if False and not any(isinstance",
            ),
        ),
        ("tests/compat/common/test_shared.py",),
    ),
    Mutant(
        "a client that changed is not looked at by pottery",
        (
            Edit(
                "fastredlock/compat/pottery/_common.py",
                "        self._locks = self._connected()\n        began",
                "        began",
            ),
        ),
        ("tests/compat/common/test_shared.py",),
    ),
    Mutant(
        "a wrapper that forwards its attributes is taken for redis-py's",
        (
            Edit(
                "fastredlock/_options/overrides.py",
                "    if type(function) is not FunctionType:",
                "    if not hasattr(function, '__globals__'):",
            ),
        ),
        ("tests/unit/test_overrides.py",),
    ),
    Mutant(
        "a connection that its pool moves is taken to be where its settings say",
        (
            Edit(
                "fastredlock/_options/overrides.py",
                "        vars(self).update(settings, retry=self)",
                "        vars(self).update(settings, retry=self)\n"
                "        self.began = dict(settings)",
            ),
            Edit(
                "fastredlock/_options/overrides.py",
                "_place_in(vars(self))",
                "_place_in(self.began)",
            ),
        ),
        ("tests/unit/test_overrides.py",),
    ),
    Mutant(
        "the roll-back of a try with a given token is taken for a last lock",
        (
            Edit(
                "fastredlock/compat/_common/calls.py",
                "            elif failure is None or not",
                "            elif True or not",
            ),
        ),
        ("tests/compat/redis/test_lock_servers.py",),
    ),
    Mutant(
        "the error of a class that lets nothing through is hidden",
        (
            Edit(
                "fastredlock/_options/overrides.py",
                '.partition(".")[0] not in ("builtins", "redis"):',
                '.partition(".")[0] == "":',
            ),
        ),
        ("tests/unit/test_overrides.py",),
    ),
    Mutant(
        "pottery's acquire keeps what a signal interrupts",
        (
            Edit(
                "fastredlock/compat/pottery/redlock.py",
                "            self._undo(granted)\n",
                "            self._undo([])\n",
            ),
        ),
        ("tests/faults/test_interrupted_locks.py",),
    ),
    Mutant(
        "python-redis-lock's acquire keeps what a signal interrupts",
        (
            Edit(
                "fastredlock/compat/redis_lock/_lock.py",
                "            for lease in filter(None, granted):",
                "            for lease in ():",
            ),
        ),
        ("tests/faults/test_interrupted_locks.py",),
    ),
    Mutant(
        "redlock-py's lock keeps what a signal interrupts",
        (
            Edit(
                "fastredlock/compat/redlock.py",
                "            for lease in filter(None, granted):",
                "            for lease in ():",
            ),
        ),
        ("tests/faults/test_interrupted_locks.py",),
    ),
    Mutant(
        "an interrupted acquire gives back what another thread was granted",
        (
            Edit(
                "fastredlock/compat/redis_lock/_lock.py",
                "            for lease in filter(None, granted):",
                "            for lease in filter(None, [self._lease]):",
            ),
        ),
        ("tests/faults/test_interrupted_locks.py",),
    ),
    Mutant(
        "a client's prefix is ignored",
        (
            Edit(
                "fastredlock/_options/overrides.py",
                "    if is_overridden:\n",
                "    if False:\n",
            ),
        ),
        ("tests/unit/test_overrides.py",),
    ),
    Mutant(
        "a client of a known pool is not looked at",
        (
            Edit(
                "fastredlock/_options/redis_py.py",
                "    refuse_overrides(client, *name)  # of one pool",
                "    pass  # of one pool",
            ),
        ),
        ("tests/compat/common/test_shared.py",),
    ),
    Mutant(
        "settings that were changed after the first lock are not read",
        (
            Edit(
                "fastredlock/compat/_common/shared.py",
                "    yield identity_of(master, *name)",
                "    identity_of(master)",
            ),
        ),
        ("tests/compat/common/test_shared.py",),
    ),
    Mutant(
        "a lock of aioredlock's kin that is called invalid is extended on",
        (
            Edit(
                "fastredlock/compat/aioredlock/lock.py",
                'if name == "valid" and',
                'if name == "" and',
            ),
        ),
        ("tests/compat/aioredlock/test_held_locks.py",),
    ),
    Mutant(
        "a script that was set on a lock is not seen",
        (
            Edit(
                "fastredlock/compat/redis/_base.py",
                "            vars(self).get(name) is not None\n            or ",
                "            ",
            ),
        ),
        ("tests/compat/redis/test_scripts.py",),
    ),
    Mutant(
        "databases of one server taken outside compat",
        (
            Edit(
                "fastredlock/_options/url.py",
                "    if isinstance(masters, SameServerAllowed):",
                "    if True:",
            ),
        ),
        ("tests/unit/test_url.py", "tests/compat/common/test_one_server.py"),
    ),
    Mutant(
        "aioredlock's unlock takes what another holds for free",
        (
            Edit(
                "fastredlock/compat/aioredlock/algorithm.py",
                "            if not self._is_free(votes):\n",
                "            if not (votes or self._is_free(votes)):\n",
            ),
        ),
        ("tests/compat/aioredlock/test_suite.py",),
    ),
    Mutant(
        "acquires under way not undone by close",
        (
            Edit(
                "src_cython/engine/ending.pyx",
                '    return engine_end_acquires(self, "closed", clock_ns())\n',
                "    return 0\n",
            ),
            Edit(
                "src_cython/drivers/asyncio.pyx",
                '        asyncio_end_acquires(self, "closed")\n',
                "",
            ),
        ),
        ("tests/behaviour/test_closing.py",),
    ),
    Mutant(
        "extension repeated behind a later one",
        (
            Edit(
                "src_cython/round/round.pyx",
                "        return lease is None or self.extensions == lease.extensions\n",
                "        return True\n",
            ),
        ),
        ("tests/unit/test_engine.py",),
    ),
    Mutant(
        "release that waits for a quorum not sent by close",
        (
            Edit(
                "src_cython/engine/ending.pyx",
                "            engine_submit_at_once(self, round, now_ns)\n",
                "            pass\n",
            ),
        ),
        ("tests/behaviour/test_closing.py",),
    ),
    Mutant(
        "release refused after close",
        (
            Edit(
                "src_cython/drivers/blocking.pyx",
                "        if self.is_closed and not work_is_release(work):\n",
                "        if self.is_closed:\n",
            ),
            Edit(
                "src_cython/drivers/asyncio.pyx",
                "        if not work_is_release(work):\n",
                "        if True:\n",
            ),
        ),
        ("tests/behaviour/test_closing.py",),
    ),
    Mutant(
        "loop that a task runs again has no handle to read by",
        (
            Edit(
                "src_cython/drivers/asyncio.pyx",
                "        self.loop.add_reader(self.epoll_fd, self.on_ready)\n"
                "            if",
                "        pass\n            if",
            ),
        ),
        ("tests/behaviour/test_loops.py",),
    ),
    Mutant(
        "undo of a batch does not wait for its replies",
        (
            Edit(
                "src_cython/drivers/blocking.pyx",
                "            engine_drain(engine)\n"
                "            engine_settle_undo(engine, work)\n",
                "            engine_drain(engine)\n",
            ),
            Edit(
                "src_cython/drivers/blocking.pyx",
                "    for engine in alive:\n",
                "    for engine in ():\n",
            ),
            Edit(
                "src_cython/engine/engine.pyx",
                "            engine_settle_all(self, clock_ns() + UNDO_NS)\n",
                "            pass\n",
            ),
        ),
        ("tests/faults/test_endings.py",),
    ),
    Mutant(
        "end of a multiprocessing child not watched",
        (
            Edit(
                "src_cython/drivers/blocking.pyx",
                "    if finalize is not None: ",
                "    if False: ",
            ),
        ),
        ("tests/faults/test_endings.py",),
    ),
    Mutant(
        "stopped daemon thread waited for",
        (
            Edit(
                "src_cython/drivers/blocking.pyx",
                "    return interpreter_is_finalizing() and engine_take_over(self)\n",
                "    return False\n",
            ),
        ),
        ("tests/faults/test_exits.py",),
    ),
    Mutant(
        "forked child goes on with the step of its parent",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "    engine_check_fork(self)\n    self.leadership.leader_at",
                "    self.leadership.leader_at",
            ),
        ),
        ("tests/faults/test_forks_inside.py",),
    ),
    Mutant(
        "bulk strings of a reply looked through for headers",
        (
            Edit(
                "src_cython/protocol/replies.pyx",
                "SCAN_BULK if where == SCAN_LENGTH else SCAN_LINE_START",
                "SCAN_LINE_START",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "value of a key taken for its length",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                '"=" .. string.gsub(value, "\\\\n", "\\\\n=")',
                "value",
            ),
            Edit(
                "fastredlock/_reports/votes.py",
                'value[1:].replace(b"\\n=", b"\\n")',
                "value",
            ),
            Edit(
                "fastredlock/_options/scripts.py",
                "# Of several keys, all or nothing.",
                "import hashlib\n"
                "INSPECT_SHA1 = hashlib.sha1(INSPECT).hexdigest().encode()\n#",
            ),
        ),
        ("tests/behaviour/test_foreign_values.py",),
    ),
    Mutant(
        "token in the context of its error",
        (
            Edit(
                "fastredlock/_options/keys.py",
                "        except UnicodeEncodeError:  # which keeps the value: "
                "no other error follows it\n            return None\n",
                "        except UnicodeEncodeError:\n"
                '            raise ConfigurationError("give bytes")\n',
            ),
        ),
        ("tests/unit/test_values.py",),
    ),
    Mutant(
        "no connection for the releases of an interrupted one",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "            if master_is_due(master, False, now_ns):",
                "            if False and master_is_due(master, False, now_ns):",
            ),
        ),
        ("tests/faults/test_tls_interrupts.py",),
    ),
    Mutant(
        "leader waits on in the step in which it took a close()",
        (
            Edit(
                "src_cython/engine/ending.pyx",
                "(was_closed and engine_is_connected_or_deferring(self))",
                "engine_is_connected_or_deferring(self)",
            ),
        ),
        ("tests/behaviour/test_closing.py",),
    ),
    Mutant(
        "close() goes on for ever where its leader is killed",
        (
            Edit(
                "src_cython/drivers/blocking.pyx",
                "    finally:      # a leader's greenlet may be killed in there",
                "    except OSError:\n"
                "        raise\n"
                "    else:      # a leader's greenlet may be killed in there",
            ),
        ),
        ("tests/faults/test_greenlets.py",),
    ),
    Mutant(
        "told waiter skips the quorum",
        (
            Edit(
                "src_cython/round/round.pyx",
                "    elif round_is_refused(self):\n",
                "    elif self.turn is not None and ("
                "(<Turn>self.turn).gate_reply == GATE_SET):\n"
                "        round_close(self, VERDICT_WON, now_ns)\n"
                "    elif round_is_refused(self):\n",
            ),
        ),
        WAITERS,
    ),
    Mutant(
        "refusal of the gate is no veto",
        (
            Edit(
                "src_cython/round/round.pyx",
                "    elif round_is_refused(self):\n",
                "    elif False and round_is_refused(self):\n",
            ),
        ),
        WAITERS,
    ),
    Mutant(
        "entry not removed from the queue after a grant",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                'then\n  redis.pcall("zrem", queue, ARGV[3])\n  if KEYS[2]',
                "then\n  if KEYS[2]",
            ),
            TAKE_TURN_SHA1_ANEW,
        ),
        MODEL,
    ),
    Mutant(
        "an extension without expiry has no ttl",
        (
            Edit(
                "src_cython/protocol/commands.pyx",
                "round.terms.has_expiry or not (is_set or acquires_again)\n",
                "round.terms.has_expiry\n",
            ),
        ),
        ("tests/behaviour/test_expiry.py",),
    ),
    Mutant(
        "an entry that is interrupted as it is left stays",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "        entered = lock_take(self, blocks)\n        if isinstance(",
                "        entered = None\n        if isinstance(",
            ),
        ),
        REENTRY,
    ),
    Mutant(
        "a kept body that is interrupted as it is entered is not left",
        (
            Edit(
                "fastredlock/_locking/awaitable.py",
                "                leaving = lock_leave(self, None, None, None)\n"
                "                del leaving",
                "                pass",
            ),
        ),
        REENTRY,
    ),
    Mutant(
        "another thread leaves an inner entry of any lease",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "if isinstance(entry[1], LeaseFields) or entry[0] != others[-1][0]:\n",
                "if False:\n",
            ),
        ),
        ("tests/unit/test_lock_entries.py",),
    ),
    Mutant(
        "a label that is no text",
        (
            Edit(
                "fastredlock/prometheus.py",
                "(str(self._label(resource)),)",
                "(self._label(resource),)",
            ),
        ),
        ("tests/setups/test_prometheus.py",),
    ),
    Mutant(
        "several keys are handed on by the first",
        (
            Edit(
                "src_cython/types.pxi",
                "KIND_IS_HANDED_ON = 0b101 ",
                "KIND_IS_HANDED_ON = 0b111 ",
            ),
            Edit(COHORT, "next.kind != taken.kind", "False"),
        ),
        COHORTS,
    ),
    Mutant(
        "a time that is a bound is counted above it",
        (
            Edit(
                "src_cython/calls/observer.pyx",
                "and not amount <= <double>self.bounds[place]:",
                "and not amount < <double>self.bounds[place]:",
            ),
        ),
        ("tests/unit/test_tally.py",),
    ),
    Mutant(
        "a subclass of a collector is not called",
        (
            Edit(
                "fastredlock/prometheus.py",
                "if getattr(self, event, None) == MethodType(OWN[event], self):",
                "if True:",
            ),
        ),
        ("tests/setups/test_prometheus.py",),
    ),
    Mutant(
        "processes that share their metrics count each for itself",
        (
            Edit(
                "fastredlock/prometheus.py",
                "is_shared = ValueClass is not MutexValue",
                "is_shared = False",
            ),
        ),
        ("tests/setups/test_prometheus.py",),
    ),
    Mutant(
        "an inner entry of a reentrant lock that was interrupted stays",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "        if entered is call or acquires and",
                "        if acquires and",
            ),
        ),
        ("tests/unit/test_lock_entries.py",),
    ),
    Mutant(
        "one inner entry for all callers of a reentrant lock",
        (
            Edit(
                "fastredlock/_locking/reentrant.py",
                "return Join(lease, ttl)",
                "return JOINS.setdefault(lock, Join(lease, ttl))",
            ),
            Edit(
                "fastredlock/_locking/reentrant.py",
                "REENTRANT = Reentrant()",
                "REENTRANT = Reentrant()\nJOINS: dict = {}",
            ),
        ),
        REENTRY,
    ),
    Mutant(
        "any caller finds the lease of a block of another",
        (
            Edit(
                "fastredlock/_locking/entered.py",
                "if block is not None and block.whose is OURS:",
                "if block is not None:",
            ),
        ),
        ("tests/behaviour/test_skipping.py",),
    ),
    Mutant(
        "a lock that is taken inside of a skipping function skips it",
        (
            Edit(
                "fastredlock/_locking/blocking.py",
                "            except Skipped:\n",
                "            except Exception:\n",
            ),
        ),
        ("tests/behaviour/test_skipping.py",),
    ),
    Mutant(
        "a lock of SETNX is an error of a foreign key",
        (
            Edit(
                "fastredlock/_locking/foreign.py",
                "(vote.token_hash is None or vote.text == EMPTY)",
                "vote.text is not None",
            ),
        ),
        ("tests/behaviour/test_foreign_keys.py",),
    ),
    Mutant(
        "a loop that is left keeps its leadership until the ttl",
        (
            Edit(
                "fastredlock/_locking/awaitable.py",
                "leaving.send(None)",
                "pass",
            ),
        ),
        LEADING,
    ),
    Mutant(
        "a call imports what it needs at its first use",
        (
            Edit(
                "fastredlock/_locking/held.py",
                "    return [\n        lease\n",
                "    import sched  # noqa: F401\n\n    return [\n        lease\n",
            ),
        ),
        ("tests/faults/test_imports_in_calls.py",),
    ),
    Mutant(
        "the text of a half-made error raises",
        (
            Edit(
                "fastredlock/errors.py",
                "        except Exception:  # half-made",
                "        except ValueError:  # half-made",
            ),
        ),
        ("tests/unit/test_texts.py",),
    ),
    Mutant(
        "a host that is no host is quoted",
        (
            Edit(
                "fastredlock/_options/endpoint.py",
                "if isinstance(value, str | bytes) and value:",
                "if isinstance(value, bytes) and value:",
            ),
        ),
        ("tests/unit/test_url.py",),
    ),
    Mutant(
        "a loss in a term cancels the task that campaigns",
        (
            Edit(
                "fastredlock/_locking/awaitable.py",
                "        self._last_entry = (caller, lease)\n",
                "        self._last_entry = (caller, lease)\n"
                "        lease._enter_kept()\n",
            ),
        ),
        LEADING,
    ),
    Mutant(
        "a block that was left still counts as entered",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "    fields_leave(lease)\n    call.error = error\n",
                "    call.error = error\n",
            ),
        ),
        REENTRY,
    ),
    Mutant(
        "the caller that tries again has the place of its next",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                "< math.min(ticket, tonumber(entered)) then",
                "< tonumber(entered) then",
            ),
            TAKE_TURN_SHA1_ANEW,
        ),
        MODEL,
    ),
    Mutant(
        "ticket from the client's clock",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                'string.format("%.0f", time[1] * 1000000 + time[2] - ARGV[2])',
                'string.format("%.0f", ARGV[2])',
            ),
            Edit(
                "src_cython/waiting/queue.pyx",
                "max(<int64_t>0, (now_ns - since_ns) // 1000)",
                "(since_ns // 1000)",
            ),
        ),
        (*MODEL, *WAITERS),
    ),
    Mutant(
        "push counted as a reply",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "        if type(reply) is PushNotification:\n",
                "        if False:\n",
            ),
        ),
        WAITERS,
    ),
    Mutant(
        "hand-over in front of the release",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "        engine_before_release(self, round, now_ns)\n",
                "        engine_before_release(self, round, now_ns)\n"
                "        engine_admit_opened(self, now_ns)\n",
            ),
        ),
        WAITERS,
    ),
    Mutant(
        "error of a native command taken for its answer",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "        if entry.is_native and not self.is_native_alone:\n",
                "        if False:\n",
            ),
        ),
        NATIVE,
    ),
    Mutant(
        "gate of a release that is sent the native command",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "        return FORM_GATE\n",
                "        return self.native or FORM_GATE\n",
            ),
        ),
        RELEASE_AT_GATE,
    ),
    Mutant(
        "answer of a gate not waited for by a process that then rests",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "        if release.gate < 0 or release.cells[release.gate].vote",
                "        if True or release.cells[release.gate].vote",
            ),
        ),
        RELEASE_AT_GATE,
    ),
    Mutant(
        "roll-back by a native command that was never answered",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "        self.native_is_proven or not by_source\n",
                "        True\n",
            ),
        ),
        NATIVE,
    ),
    Mutant(
        "master that is away logged at each attempt",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "> AWAY_NS and not self.is_away_logged:",
                "> AWAY_NS:",
            ),
        ),
        ("tests/unit/test_away.py",),
    ),
    Mutant(
        "refused server logged as connected again",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "    return master_note_back(master, now_ns)\n",
                "    return 0\n",
            ),
            Edit(
                "src_cython/master/connection.pyx",
                "    master_send_deferred(self, now_ns)\n    counters_note",
                "    master_send_deferred(self, now_ns)\n"
                "    master_note_back(self, now_ns)\n    counters_note",
            ),
        ),
        ("tests/unit/test_away.py",),
    ),
    Mutant(
        "lease that a forked child drops warned of as its own",
        (
            Edit(
                "src_cython/calls/fields.pyx",
                "is_exiting or taken.generation != current_generation or (",
                "is_exiting or (",
            ),
        ),
        ("tests/behaviour/test_dropped.py",),
    ),
    Mutant(
        "extension of a key that is gone taken for a grant",
        (
            Edit(
                "src_cython/protocol/replies.pyx",
                'votes = b"TGT---"',
                'votes = b"TGG---"',
            ),
        ),
        ("tests/unit/test_reply.py", "tests/behaviour/test_extend.py"),
    ),
    Mutant(
        "nil of a native extension taken for a grant",
        (
            Edit(
                "src_cython/protocol/replies.pyx",
                "        if reply is None:\n            return VOTE_TAKEN\n",
                "        if reply is None:\n            return VOTE_GRANTED\n",
            ),
        ),
        NATIVE,
    ),
    Mutant(
        "first one that is gone not dropped by a question",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                "    if heard[2] ~= 0 and not is_late(head) then break end\n",
                "    if heard[2] ~= -1 and not is_late(head) then break end\n",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "a pause in which the gate may give a turn",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "        else PAUSED_ENTRY if turn_is_paused(turn)\n",
                "",
            ),
        ),
        ELSEWHERE,
    ),
    Mutant(
        "callers whose turns are lost do not pause",
        (
            Edit(
                "fastredlock/_locking/attempt.py",
                "                if lost_turns > LOST_TURNS:\n",
                "                if lost_turns > LOST_TURNS * 1000:\n",
            ),
        ),
        ELSEWHERE,
    ),
    Mutant(
        "a roll-back tells the next one of this process",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "        round.turn is None or round.verdict_code != VERDICT_TAKEN\n",
                "        True or round.verdict_code != VERDICT_TAKEN\n",
            ),
        ),
        ELSEWHERE,
    ),
    Mutant(
        "a pause that goes on where the gate has the key",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "        if place == 0 and left == -2:\n            return 0\n",
                "        return 0\n",
            ),
        ),
        ELSEWHERE,
    ),
    Mutant(
        "last of a queue not asked to look after an old first",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                "in ipairs(waited > 100000 and last or {})",
                "in ipairs({})",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "those behind one that let its turn pass told one by one",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                "      elseif asks and has_passed then\n",
                "      elseif false then\n",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "call taken for a turn",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "if queue is None and engine_is_called(self, resource, now_ns):",
                "if False:",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "one that is called does not ask at once",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                '    if push[:1] == b"~":\n',
                "    if False:\n",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "one that is asked to look later looks at its usual time",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "min(queue.due_ns, now_ns + TURN_NS)",
                "queue.due_ns",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "one that is far behind does not look at what its question has told",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "whose == TURN_OTHER and queue.place",
                "queue.place",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "every turn that is unknown has an answer",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "    if master.missed > MISSED_MOST:\n",
                "    if False:\n",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "one that pauses is not noted at the gate",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                '  note("~" .. head)\n',
                "",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "a pause shortens the ttl of a lock that has the turn's name",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                'if is_notified("~" .. head) then redis.pcall("pexpire", turn, 300)',
                'if true then redis.pcall("pexpire", turn, 300)',
            ),
            Edit(
                "fastredlock/_options/scripts.py",
                "# SET NX PX, at the gate, by a process whose turn it is. ARGV: token;",
                "import hashlib\n\n"
                "ASK_TURN_SHA1 = hashlib.sha1(ASK_TURN).hexdigest().encode()\n"
                "# SET NX PX, at the gate, by a process whose turn it is. ARGV: token;",
            ),
        ),
        ELSEWHERE,
    ),
    Mutant(
        "the first question lets a key expire that is no queue",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                'if type(waiting) == "number" then redis.call',
                "if true then redis.call",
            ),
            Edit(
                "fastredlock/_options/scripts.py",
                "# SET NX PX, at the gate, by a process whose turn it is. ARGV: token;",
                "import hashlib\n\n"
                "ASK_TURN_SHA1 = hashlib.sha1(ASK_TURN).hexdigest().encode()\n"
                "# SET NX PX, at the gate, by a process whose turn it is. ARGV: token;",
            ),
        ),
        ("tests/faults/test_waiting_neighbours.py",),
    ),
    Mutant(
        "one that takes its turn lets a key expire that is no queue",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                'if type(entered) == "number" and ',
                "if ",
            ),
            TAKE_TURN_SHA1_ANEW,
        ),
        ("tests/faults/test_waiting_neighbours.py",),
    ),
    Mutant(
        "one that pauses is taken for one that was told",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                ' or is_notified("~" .. head)) then\n',
                ") then\n",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "those behind never try on all masters",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "every_ns = TRY_BEHIND_NS * queue.place\n",
                "every_ns = NEVER_NS if queue.place else 0\n",
            ),
        ),
        WAITERS,
    ),
    Mutant(
        "one behind tries out of turn at its second free answer",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "        return now_ns - queue.free_ns >= FREE_NS\n",
                "        return True\n",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "one behind tries out of turn where releases notify others",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "    elif whose != TURN_OTHER and queue.free_ns == 0:\n"
                "        queue.free_ns = now_ns\n"
                "    elif whose != TURN_OTHER:\n",
                "    elif queue.free_ns == 0:\n"
                "        queue.free_ns = now_ns\n    else:\n",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "a key between two free answers is forgotten",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "    if left_ms != -2:\n        queue.free_ns = 0\n",
                "    if left_ms != -2:\n        return False\n",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "a try out of turn asks the gate for its turn",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "        head.gate = -1\n",
                "",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "an entry at the gate is taken for that of whoever is first here",
        (
            Edit(
                "src_cython/waiting/queue.pyx",
                "changed     .      .      .      STALE  STALE  STALE  ",
                "changed     .      .      .      .      .      .      ",
            ),
        ),
        (*QUEUES, *WAITERS),
    ),
    Mutant(
        "an entry of nobody stays at the gate",
        (
            Edit(
                "src_cython/waiting/queue.pyx",
                "empty       leave  .      AWAY*  ",
                "empty       leave  .      AWAY   ",
            ),
        ),
        (*QUEUES, "tests/unit/test_waiting_by_hand.py"),
    ),
    Mutant(
        "one that won out of turn leaves its entry",
        (
            Edit(
                "src_cython/waiting/queue.pyx",
                " or round.gate < 0:\n",
                ":\n",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "gate not asked again for 25 s",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "    ASK_AGAIN_NS = 250_000_000\n",
                "    ASK_AGAIN_NS = 25_000_000_000\n",
            ),
        ),
        WAITERS,
    ),
    Mutant(
        "renewal after the release",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "    if round_is_of_released(round):\n",
                "    if False:\n",
            ),
        ),
        ("tests/unit/test_engine_released.py",),
    ),
    Mutant(
        "renewal repeated after the release",
        (
            Edit(
                "src_cython/round/round.pyx",
                " or round_is_of_released(self):\n",
                ":\n",
            ),
        ),
        ("tests/unit/test_engine_released.py",),
    ),
    Mutant(
        "extension on a lost connection is never ended behind the release",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "        elif round_is_of_released(round):",
                "        elif False:",
            ),
        ),
        ("tests/unit/test_engine_released.py",),
    ),
    Mutant(
        "loss told by the failed renewal only",
        (
            Edit(
                "fastredlock/_locking/keeping/renewals.py",
                "if now_ns >= end_ns - pace.margin_ns or kept.is_lost:",
                "if False:",
            ),
        ),
        (*KEEPING, "tests/sim"),
    ),
    Mutant(
        "loss told 30 ms after the end of the validity",
        (
            Edit(
                "fastredlock/_locking/keeping/renewals.py",
                "if now_ns >= end_ns - pace.margin_ns or kept.is_lost:",
                "if now_ns >= end_ns + 30_000_000 or kept.is_lost:",
            ),
        ),
        (*KEEPING, "tests/sim"),
    ),
    Mutant(
        "loss told at the first renewal that is not confirmed",
        (
            Edit(
                "fastredlock/_locking/keeping/renewals.py",
                "            elif round.verdict is TAKEN:\n",
                "            elif not round.is_won:\n",
            ),
        ),
        KEEPING,
    ),
    Mutant(
        "renewals take as long as their masters do",
        (
            Edit(
                "fastredlock/_locking/keeping/renewals.py",
                "        return max(time_ns, LEAST_TIME_NS)\n",
                "        return 1 << 60\n",
            ),
        ),
        (*KEEPING, "tests/sim"),
    ),
    Mutant(
        "numbers begin anew under a holder",
        (
            Edit(
                "fastredlock/_cli/numbers.py",
                'if redis.call("exists", KEYS[1]) == 1 then',
                "if false then",
            ),
        ),
        ("tests/cli/test_numbers.py",),
    ),
    Mutant(
        "numbers that can go on begin anew",
        (
            Edit(
                "fastredlock/_cli/numbers.py",
                "        return self.error is None and not self.value < LAST\n",
                "        return not self.can_go_on\n",
            ),
        ),
        ("tests/cli/test_numbers.py",),
    ),
    Mutant(
        "lock on the key of another's number, by the first try",
        (
            Edit(
                "src_cython/calls/acquire.pyx",
                'len(key), b"fastredlock:", 12) != NULL\n',
                'len(key), b"no key has this", 12) != NULL\n',
            ),
        ),
        ("tests/unit/test_values.py",),
    ),
    Mutant(
        "lock of many on the key of another's number",
        (
            Edit(
                "fastredlock/_options/keys.py",
                'b" ".join(keys).find(OWN) < 0',
                "RESERVED.isdisjoint(keys)",
            ),
        ),
        ("tests/unit/test_values.py",),
    ),
    Mutant(
        "consumer of a generator is not told why it was cancelled",
        (
            Edit(
                "fastredlock/_locking/keeping/loop_lost.py",
                "isinstance(error, CancelledError | GeneratorExit)",
                "isinstance(error, CancelledError)",
            ),
        ),
        ("tests/behaviour/test_keeping_generators.py",),
    ),
    Mutant(
        "callbacks of lost leases wait for each other",
        (
            Edit(
                "fastredlock/_locking/keeping/foreign_calls.py",
                "            self.start()\n            make(call)\n",
                "            make(call)\n",
            ),
        ),
        FOREIGN_CALLS,
    ),
    Mutant(
        "exit in a callback silences the others",
        (
            Edit(
                "fastredlock/_locking/keeping/foreign_calls.py",
                "    except BaseException as raised:\n        return raised if",
                "    except Exception as raised:\n        return raised if",
            ),
        ),
        FOREIGN_CALLS,
    ),
    Mutant(
        "child of a callback that forks makes the parent's calls",
        (
            Edit(
                "fastredlock/_locking/keeping/foreign_calls.py",
                "            if fork_generation() != self._generation:\n",
                "            if False:\n",
            ),
        ),
        FOREIGN_CALLS,
    ),
    Mutant(
        "exit in a callback is not logged",
        (
            Edit(
                "fastredlock/_locking/keeping/foreign_calls.py",
                '    except BaseException as raised:\n        log("%r: on_lost raised',
                '    except Exception as raised:\n        log("%r: on_lost raised',
            ),
        ),
        BESIDE_KEEPERS,
    ),
    Mutant(
        "loss that its release has seen first is not reported",
        (
            Edit(
                "fastredlock/_locking/keeping/kept.py",
                "            self.report(lease)\n",
                "",
            ),
        ),
        ("tests/behaviour/test_keeping.py",),
    ),
    Mutant(
        "key that its release finds gone is not reported",
        (
            Edit(
                "fastredlock/_locking/keeping/kept.py",
                "            self.report(lease, release)\n",
                "            pass\n",
            ),
        ),
        ("tests/behaviour/test_keeping.py",),
    ),
    Mutant(
        "observer of renewals called by the keeper itself",
        (
            Edit(
                "fastredlock/_locking/keeping/keeper.py",
                "        self._keeper.notes.start()  # or later",
                "        self._notes.make_all()\n",
            ),
        ),
        BESIDE_KEEPERS,
    ),
    Mutant(
        "slow observer leaves the loop no turn",
        (
            Edit(
                "fastredlock/_locking/keeping/loop_keeper.py",
                "CALLS_NS = 1_000_000  #",
                "CALLS_NS = 1 << 60  #",
            ),
        ),
        BESIDE_KEEPERS,
    ),
    Mutant(
        "lease is renewed for an observer's sake",
        (
            Edit(
                "fastredlock/_locking/observing.py",
                "            del lease  # a method",
                "            pass  # a method",
            ),
        ),
        BESIDE_KEEPERS,
    ),
    Mutant(
        "bound of keeping ignored",
        (
            Edit(
                "fastredlock/_locking/keeping/renewals.py",
                "kept.until_ns is None or now_ns < kept.until_ns",
                "True",
            ),
        ),
        KEEPING,
    ),
    Mutant(
        "renewal counts after the validity is over",
        (
            Edit(
                "src_cython/calls/fields.pyx",
                "            or round.closed_ns >= kept.validity_ns\n",
                "",
            ),
        ),
        KEEPING,
    ),
    Mutant(
        "renewal beside an extension by hand does not bind it",
        (
            Edit(
                "fastredlock/_locking/keeping/kept.py",
                "        if not renewal.closed_ns:\n",
                "        if False:\n",
            ),
        ),
        KEEPING,
    ),
    Mutant(
        "renewals that were never answered are forgotten",
        (
            Edit(
                "fastredlock/_locking/keeping/kept.py",
                "            self.watched().awaited |= renewal.may_hold\n",
                "            pass\n",
            ),
        ),
        KEEPING,
    ),
    Mutant(
        "all leases that were taken together are renewed together",
        (
            Edit(
                "fastredlock/_locking/keeping/renewals.py",
                "        return self._draw * span_ns >> 16\n",
                "        return 0\n",
            ),
        ),
        KEEPING,
    ),
    Mutant(
        "lock of aioredlock stays valid after its loss",
        (
            Edit(
                "fastredlock/compat/aioredlock/algorithm.py",
                "        lock.valid = False\n        manager = ",
                "        manager = ",
            ),
        ),
        ("tests/compat/aioredlock/test_faults.py",),
    ),
    Mutant(
        "lease that is kept inside of its block cancels no body",
        (
            Edit(
                "fastredlock/_locking/keeping/options.py",
                "        lease._watch_body(kept)\n",
                "",
            ),
        ),
        ("tests/behaviour/test_keeping_inside.py",),
    ),
    Mutant(
        "loss that an extension by hand has found is not told",
        (
            Edit(
                "fastredlock/_locking/validity.py",
                "        self.validity_ns = [0]\n        if self.kept is not None:\n",
                "        self.validity_ns = [0]\n        if False:\n",
            ),
        ),
        KEEPING,
    ),
    Mutant(
        "semaphore whose slots are held is called free",
        (
            Edit(
                "fastredlock/_cli/holding.py",
                "if found else holding",
                "if 0 else holding",
            ),
        ),
        ("tests/cli/test_permits.py",),
    ),
    Mutant(
        "run waits for what no waiting cures",
        (
            Edit(
                "fastredlock/_cli/waiting.py",
                "engine, round) or is_refused(votes)",
                "engine, round)",
            ),
        ),
        ("tests/cli/test_run.py",),
    ),
    Mutant(
        "lock with at_least is released with its block",
        (
            Edit(
                "src_cython/calls/fields.pyx",
                "    if left_ns > 0:\n        ttl_ms",
                "    if left_ns < 0:\n        ttl_ms",
            ),
        ),
        ("tests/behaviour/test_skipping.py",),
    ),
    Mutant(
        "connection that is on its way at an end is not tried once more",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "        master.is_opening_at_end = master_is_opening(master)\n",
                "",
            ),
        ),
        RELEASED,
    ),
    Mutant(
        "at_least ends where the leave is interrupted, or the client is closed",
        (
            Edit(
                "src_cython/calls/fields.pyx",
                "    if extensions.stays_until_ns != 0:\n",
                "    if extensions.stays_until_ns != 0 and not engine.is_closed:\n",
            ),
        ),
        ("tests/behaviour/test_skipping.py",),
    ),
    *(
        Mutant(f"end of at_least {name}", (Edit(*edit),), RELEASED)
        for name, edit in {
            "is not sent where its caller gives up": (
                "src_cython/engine/pass.pyx",
                "        if round_is_release(round):\n",
                "        if round.operation_code == OPERATION_RELEASE:\n",
            ),
            "is not sent where its client is closed": (
                "src_cython/round/round.pyx",
                "self.operation_code == OPERATION_EXTEND and self.is_released",
                "False",
            ),
            "waits for a quorum in close()": (
                "src_cython/engine/ending.pyx",
                "        elif round_is_release(round):\n",
                "        elif round.operation_code == OPERATION_RELEASE:\n",
            ),
            "is given up in a batch": (
                "src_cython/engine/pass.pyx",
                "            "
                "round.operation_code == OPERATION_EXTEND and not round.is_released",
                "            round.operation_code == OPERATION_EXTEND",
            ),
            "is not sent again where its script is not known": (
                "src_cython/round/round.pyx",
                "    if round_is_release(self):\n        return True\n",
                "",
            ),
        }.items()
    ),
    Mutant(
        "lock stays for longer than a holder that dies would keep it",
        (
            Edit(
                "fastredlock/_locking/keeping/options.py",
                "if self._at_least_ns > terms.ttl_ms * 1_000_000:",
                "if self._at_least_ns < 0:",
            ),
        ),
        ("tests/behaviour/test_skipping.py",),
    ),
    Mutant(
        "ttl is refused for a bad moment of its masters",
        (
            Edit(
                "fastredlock/_locking/keeping/options.py",
                "driver.engine.shortest_round_trip_ns",
                "driver.engine.round_trip_ns",
            ),
        ),
        ("tests/unit/test_keep_alive.py",),
    ),
    Mutant(
        "number that no quorum has",
        (
            Edit(
                "src_cython/round/fencing.pyx",
                "    if having >= round_quorum(round):\n",
                "    if having >= 1:\n",
            ),
        ),
        (*FENCING, "tests/sim"),
    ),
    Mutant(
        "number that is not the largest of its quorum",
        (
            Edit(
                "src_cython/round/fencing.pyx",
                "            self.fence = max(self.fence, self.known[i])\n",
                "            self.fence = self.fence or self.known[i]\n",
            ),
        ),
        FENCING,
    ),
    Mutant(
        "second write without comparing the token",
        (
            Edit(
                FENCED,
                'redis.call("get", key) ~= ARGV[1] then return 0 end\n'
                "end\nfor _, key in ipairs(KEYS) do\n  local name",
                'redis.call("get", key) == 0 then return 0 end\n'
                "end\nfor _, key in ipairs(KEYS) do\n  local name",
            ),
            FENCE_SHA1S_ANEW,
        ),
        (*FENCE_SCRIPTS, "tests/faults/test_late_fences.py"),
    ),
    Mutant(
        "second write that lowers a number",
        (
            Edit(FENCED, "  if last < tonumber(ARGV[2]) then", "  if last then"),
            FENCE_SHA1S_ANEW,
        ),
        FENCE_SCRIPTS,
    ),
    Mutant(
        "number that is repeated where the clock is behind",
        (
            Edit(FENCED, "then fence = counted + 1 end", "then fence = counted end"),
            FENCE_SHA1S_ANEW,
        ),
        (*FENCE_SCRIPTS, "tests/sim"),
    ),
    Mutant(
        "numbers that are ahead of the clock by an hour followed for good",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "    if fences.ahead_us < ahead_us <= AHEAD_MOST_US:\n",
                "    if fences.ahead_us < ahead_us:\n",
            ),
        ),
        FENCING,
    ),
    Mutant(
        "user that may not write numbers gets a vote",
        (
            Edit(
                "src_cython/protocol/handshake.pyx",
                '        if "fencing" in self.refused:\n',
                "        if False:\n",
            ),
        ),
        ("tests/setups/test_rights.py",),
    ),
    Mutant(
        "number without the clock",
        (Edit(FENCED, "fence = tonumber(proposed)", "fence = 1"), FENCE_SHA1S_ANEW),
        (*FENCE_SCRIPTS, "tests/behaviour/test_fencing.py"),
    ),
    Mutant(
        "proposal that goes back with its clock",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "    if fences.proposed < wall_us <= WALL_MOST_US:\n",
                "    if wall_us <= WALL_MOST_US:\n",
            ),
        ),
        FENCING,
    ),
    Mutant(
        "proposal below the last number of its resource",
        (
            Edit(
                "src_cython/engine/masters.pyx",
                "        fences.ahead[key] = fence\n",
                "        fences.ahead[key] = 0\n",
            ),
        ),
        FENCING,
    ),
    Mutant(
        "second write not sent to a master that answers late",
        (
            Edit(
                "src_cython/round/round.pyx",
                "        return fencing_report(self)      # it counts once",
                "        return 0      # it counts once",
            ),
        ),
        FENCING,
    ),
    Mutant(
        "error to the second write taken for one to the SET",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "    if entry.writes_fence or entry.is_second",
                "    if entry.is_second",
            ),
        ),
        FENCING,
    ),
    Mutant(
        "repeated SET without the number of its round",
        (
            Edit(
                "src_cython/round/fencing.pyx",
                "decimal_bytes(self.fence or self.proposed)",
                "decimal_bytes(self.proposed)",
            ),
        ),
        FENCING,
    ),
    Mutant(
        "second write without a time of its own",
        (
            Edit(
                "src_cython/round/fencing.pyx",
                "    round.deadline_ns = max(round.deadline_ns, until_ns)\n",
                "        round.deadline_ns = NEVER_NS\n",
            ),
        ),
        FENCING,
    ),
    Mutant(
        "owner is shown of any value with an @",
        (
            Edit(
                "fastredlock/_reports/votes.py",
                "    if token[:RANDOM_LENGTH].strip(BASE64URL) or len(owner)",
                "    if len(owner)",
            ),
        ),
        ("tests/behaviour/test_tokens.py",),
    ),
    Mutant(
        "token names the process before a fork",
        (
            Edit(
                "src_cython/base.pyx",
                "if self.generation != current_generation:",
                "if False:",
            ),
        ),
        ("tests/behaviour/test_tokens.py",),
    ),
    Mutant(
        "lock is broken whichever token holds it",
        (
            Edit(
                "fastredlock/_locking/breaking.py",
                "if token is not None and hash_of(token) == token_hash:",
                "if token is not None:",
            ),
        ),
        ("tests/behaviour/test_breaking.py",),
    ),
    Mutant(
        "command at a terminal is interrupted twice",
        (
            Edit(
                "fastredlock/_cli/child.py",
                "if is_of_terminal and self._shares_group:",
                "if False:",
            ),
        ),
        ("tests/cli/test_terminal.py",),
    ),
    Mutant(
        "from_env without the file's max_ttl and key_prefix",
        (
            Edit(
                "fastredlock/_options/environment.py",
                "    return options | given\n",
                '    return {"masters": options["masters"]} | given\n',
            ),
        ),
        ("tests/unit/test_environment.py",),
    ),
    Mutant(
        "command works on where the masters are away",
        (
            Edit(
                "fastredlock/_cli/child.py",
                "            if left > self._kill_after:\n                return\n",
                "            return\n",
            ),
        ),
        ("tests/cli/test_run.py",),
    ),
    Mutant(
        "command of a killed run works on without a lock",
        (
            Edit(
                "fastredlock/_cli/child.py",
                "            end_with_parent(signal.SIGKILL)\n",
                "",
            ),
        ),
        ("tests/cli/test_run.py",),
    ),
    Mutant(
        "check leaves a missing right unsaid",
        (
            Edit(
                "fastredlock/_cli/rights.py",
                'OF_RIGHTS = ("NOPERM", ',
                "OF_RIGHTS = (",
            ),
        ),
        ("tests/cli/test_check.py",),
    ),
    Mutant(
        "frozen server votes",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "            master.silent_at_ns = now_ns\n",
                "            pass\n",
            ),
        ),
        ("tests/behaviour/test_ping.py",),
    ),
    Mutant(
        "ping leaves masters in back-off alone",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "        master.retry_at_ns = min(master.retry_at_ns, now_ns)\n",
                "        pass\n",
            ),
        ),
        ("tests/behaviour/test_ping.py",),
    ),
    Mutant(
        "credentials are asked for once",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "    self.preparing = None\n    if preparing.failure is not None:\n",
                "    if preparing.failure is not None:\n",
            ),
        ),
        (
            "tests/setups/test_credentials.py::"
            "test_password_that_is_refused_is_asked_for_anew_at_the_next_connection",
        ),
    ),
    Mutant(
        "text of an exception, which may show a password, is the reason of a vote",
        (
            Edit(
                "src_cython/master/lookup.pyx",
                "raised {type(error).__name__}",
                "raised {error!r}",
            ),
        ),
        ("tests/setups/test_credentials.py",),
    ),
    Mutant(
        "channel of a waiter has no prefix",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "self.scripts.name_prefix + CHANNEL + waiter",
                "CHANNEL + waiter",
            ),
        ),
        ("tests/behaviour/test_key_prefix.py",),
    ),
    Mutant(
        "foreign key is taken for ever",
        (
            Edit(
                "fastredlock/_locking/driver.py",
                "        self.engine.foreign = True",
                "        self.engine.foreign = None",
            ),
        ),
        (
            "tests/behaviour/test_foreign_keys.py::"
            "test_acquire_of_one_try_tells_of_a_foreign_key_when_some_time_has_passed",
        ),
    ),
    Mutant(
        "deferred release tells nobody",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "each.release.gate == self.index and notifying",
                "False and notifying",
            ),
        ),
        RELEASE_AT_GATE,
    ),
    Mutant(
        "rounds that wait for connections are looked at with each that comes",
        (
            Edit(
                "src_cython/engine/pass.pyx",
                "    admission.began_ns = now_ns\n",
                "    admission.began_ns = now_ns\n    engine_admit(self, now_ns)\n",
            ),
        ),
        ("tests/unit/test_admission.py",),
    ),
    Mutant(
        "every queue is asked about by itself",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "    if gate < 0 or len(self.queues.by_resource) <= 1:\n",
                "    if True:\n",
            ),
        ),
        MANY,
    ),
    Mutant(
        "of many queues all try on all masters",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "    questions.tried_ns = self.queues.tried_ns = now_ns\n",
                "",
            ),
        ),
        MANY,
    ),
    Mutant(
        "a question about many queues has no bound",
        (
            Edit(
                "src_cython/waiting/queue.pyx",
                "    QUESTION_MOST = 512\n",
                "    QUESTION_MOST = 100000\n",
            ),
            Edit(
                "src_cython/waiting/queue.pyx",
                "    QUESTIONS_ROUND = 40 ",
                "    QUESTIONS_ROUND = 4 ",
            ),
        ),
        MANY,
    ),
    Mutant(
        "an answer about many queues is taken for one of another length",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "        if len(answers) != 4 * len((<Turn>ask.turn).asked):\n"
                "            return 0\n",
                "",
            ),
        ),
        MANY,
    ),
    Mutant(
        "a refused queue is asked about among many again",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "(ask.keys is None or answers[at] != TURN_REFUSED):\n",
                "True:\n",
            ),
        ),
        MANY,
    ),
    Mutant(
        "numbers formatted between two halves of a hand-over",
        (
            Edit(
                "src_cython/waiting/queue.pyx",
                "return decimal_bytes(max(<int64_t>0, (now_ns - since_ns) // 1000))",
                'return b"%d" % max(<int64_t>0, (now_ns - since_ns) // 1000)',
            ),
        ),
        RAISING,
    ),
    Mutant(
        "text of an error reply asked of CPython, which runs signal handlers",
        (
            Edit(
                "src_cython/protocol/replies.pyx",
                "    return <str?>error.args[0]\n",
                "    return str(error)\n",
            ),
        ),
        RAISING,
    ),
    Mutant(
        "TLS encrypted in the middle of a round's commands",
        (
            Edit(
                "src_cython/master/connection.pyx",
                "    self.tls.unencrypted.append(plain)\n    return 0\n",
                "    self.tls.unencrypted.append(plain)\n"
                "    return 0 if self.link.is_parsing else "
                "master_encrypt(self, now_ns)\n",
            ),
        ),
        RAISING,
    ),
    Mutant(
        "task cancelled while its loop raises is never woken",
        (
            Edit(
                "src_cython/drivers/awaiting.pyx",
                "    try:\n        self.loop.call_soon(callback)\n"
                "    except BaseException:\n        self.loop.call_soon(callback)\n"
                "        raise\n    return 0\n",
                "    self.loop.call_soon(callback)\n    return 0\n",
            ),
        ),
        ("tests/fuzz/test_raising.py",),
    ),
    Mutant(
        "engine made without the GIL",
        (
            Edit(
                "fastredlock/_locking/driver.py",
                '    if not getattr(sys, "_is_gil_enabled", lambda: True)():\n',
                "    if False:\n",
            ),
        ),
        ("tests/unit/test_settings.py",),
    ),
    Mutant(
        "a slow gate is marked by those that only read late",
        (
            Edit(
                "src_cython/master/replies.pyx",
                "        self.link.looked_before_ns - entry.sent_ns, now_ns",
                "        now_ns - entry.sent_ns, now_ns",
            ),
        ),
        SLOW_GATES,
    ),
    Mutant(
        "a gate is slow after one standstill",
        (
            Edit(
                "src_cython/master/in_flight.pyx",
                "self.score == SLOW_REPLIES and now_ns - self.since_ns >= SLOW_FOR_NS",
                "self.score == SLOW_REPLIES",
            ),
        ),
        SLOW_GATES,
    ),
    Mutant(
        "a gate is slow for ever",
        (
            Edit(
                "src_cython/master/in_flight.pyx",
                "            self.is_slow = False\n",
                "            pass\n",
            ),
        ),
        SLOW_GATES,
    ),
    Mutant(
        "a queue that has moved is asked for where it was",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "and not (moved >> master.index) & 1",
                "and True",
            ),
        ),
        SLOW_GATES,
    ),
    Mutant(
        "a caller whose queue has moved waits on where it was",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "<= MARKED_MOST:\n        return engine_ask(self, queue, now_ns)\n",
                "<= MARKED_MOST:\n        return 0\n",
            ),
        ),
        SLOW_GATES,
    ),
    Mutant(
        "a first that gives up leaves its queue unknown to the gate",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "    elif wait_queue_remove(queue, round) and queue.rounds:\n"
                "        return engine_on_queue(self, queue, EVENT_WAITING, now_ns)\n",
                "    elif wait_queue_remove(queue, round) and queue.rounds:\n"
                "        return 0\n",
            ),
        ),
        ("tests/unit/test_waiting_by_hand.py",),
    ),
    Mutant(
        "a release that reads of a moved queue tells nobody there",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "if round.operation_code == OPERATION_RELEASE and gate >= 0",
                "if False and gate >= 0",
            ),
        ),
        SLOW_GATES,
    ),
    Mutant(
        "a given token is released twice, where its queue has moved",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "            self.token_uses is None\n",
                "            True\n",
            ),
        ),
        SLOW_GATES,
    ),
    Mutant(
        "a mark is not set again",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "    engine_mark_again(self, queue, now_ns)\n",
                "",
            ),
        ),
        SLOW_GATES,
    ),
    Mutant(
        "a mark is taken for a process that is gone",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                'if not first or first == ">" then return false end',
                "if not first then return false end",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "those entered where a queue moves are not called",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                'if each ~= ARGV[1] then call(each, "~") end',
                "local _ = each",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "all gates are tried on at once, at first",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "now_ns - self.queues.tried_ns < TRY_AMONG_NS - QUESTIONS_EVERY_NS",
                "False",
            ),
        ),
        MANY,
    ),
    Mutant(
        "model: a ttl ends a millisecond too early",
        (
            Edit(
                "fastredlock/testing/_keyspace.py",
                "if self.now_us >= gone_us",
                "if self.now_us >= gone_us - 1000",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "model: a script that has written is refused",
        (
            Edit(
                "fastredlock/testing/_keyspace.py",
                "        if not self.has_written:\n",
                "        if True:\n",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "model: the one that leaves is told",
        (
            Edit(
                "fastredlock/testing/_queue.py",
                "is_called = first != self._leaving and not is_late",
                "is_called = not is_late",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "model: a turn lasts for 51 ms",
        (
            Edit(
                "fastredlock/testing/_queue.py",
                "YOUNG_MS, PAUSE_MS = 60_000, 10_000, 9_950, 300",
                "YOUNG_MS, PAUSE_MS = 60_000, 10_000, 9_949, 300",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "model: those behind are told, not called",
        (
            Edit(
                "fastredlock/testing/_queue.py",
                'self._call(process, b"~")',
                'self._call(process, b"")',
            ),
        ),
        MODEL,
    ),
    Mutant(
        "model: a question gives a new ticket",
        (
            Edit(
                "fastredlock/testing/_queue.py",
                'nx=how == b"0"',
                "nx=False",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "model: a mark leaves those that were entered",
        (
            Edit(
                "fastredlock/testing/_queue.py",
                "        for each in called:\n            redis.zrem(name, each)\n",
                "",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "the clock in memory jumps although a thread works",
        (
            Edit(
                "fastredlock/testing/_patience.py",
                "WORKING = 10.0  #",
                "WORKING = 0.05  #",
            ),
        ),
        ("tests/setups/test_memory_alone.py",),
    ),
    Mutant(
        "the clock in memory jumps although a task sleeps",
        (
            Edit(
                "fastredlock/testing/_patience.py",
                'if name != "_advance" and not timer.cancelled():',
                "if False:",
            ),
        ),
        ("tests/setups/test_memory_alone.py",),
    ),
    Mutant(
        "model: a number is given twice",
        (
            Edit(
                "fastredlock/testing/_scripts.py",
                "fence = max(fence, int(last) + 1)",
                "fence = max(fence, int(last))",
            ),
        ),
        MODEL,
    ),
    Mutant(
        "slots: votes for several of them counted together",
        (
            Edit(
                "src_cython/protocol/commands.pyx",
                "    cdef tuple keys = (round.resource, round_queue(round)) "
                "if round.permits else None\n",
                "    cdef tuple keys = None\n"
                "    if round.permits:\n"
                "        keys = (slot_key(round_queue(round), (\n"
                "            slot_of_key(round.resource) + 1\n"
                "        ) % round.permits), round_queue(round))\n",
            ),
        ),
        (*SLOTS, *SIM_SLOTS),
    ),
    Mutant(
        "slots: one beyond what its caller asked for",
        (
            Edit(
                "src_cython/round/key.pyx",
                "    return slot < self.permits and (slot < 0) ==",
                "    return (slot < 0) ==",
            ),
        ),
        SLOTS,
    ),
    Mutant(
        "slots: a release names the queue of its slot",
        (
            Edit(
                "src_cython/protocol/commands.pyx",
                "cdef tuple keys = (round.resource, round_queue(round)) if",
                "cdef tuple keys = (round.resource, round.resource) if",
            ),
        ),
        SLOTS,
    ),
    Mutant(
        "slots: a look that takes the word of a minority",
        (
            Edit(
                "src_cython/round/key.pyx",
                "cdef int most = look.master_count - round_quorum(look)\n",
                "cdef int most = 0\n",
            ),
        ),
        SLOTS,
    ),
    Mutant(
        "slots: one that is freed while another is tried is forgotten",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "            queue.freed.append(slot)\n",
                "            pass\n",
            ),
        ),
        SLOTS,
    ),
    Mutant(
        "slots: the one that the gate reports is forgotten",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "            queue.slot = min(max(<object>left, -1), PERMITS_MOST)\n",
                "            pass\n",
            ),
        ),
        SLOTS,
    ),
    Mutant(
        "slots: two callers of a process try the same one",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "    slots_take(slots, slot, now_ns + round.terms.timeout_ns)\n",
                "",
            ),
        ),
        SLOTS,
    ),
    Mutant(
        "slots: one that is gone is the next to be tried",
        (
            Edit(
                "src_cython/waiting/gate.pyx",
                "slots_give(slots, slot) if is_won else 0",
                "slots_give(slots, slot)",
            ),
        ),
        SLOTS,
    ),
    Mutant(
        "baton of the keeper kept where no thread could be started",
        (
            Edit(
                "src_cython/drivers/blocking.pyx",
                "        if not has_begun:\n",
                "        if False:\n",
            ),
        ),
        INTERRUPTED_THREADS,
    ),
    Mutant(
        "error of a handler taken for one of the start",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "    except BaseException:\n        self.watcher = None\n"
                "        raise\n",
                "    except BaseException:\n        watcher = None\n",
            ),
        ),
        INTERRUPTED_THREADS,
    ),
    Mutant(
        "tasks of a closed loop are woken at the end of the interpreter",
        (
            Edit(
                "src_cython/drivers/asyncio.pyx",
                "        if not self.is_over():      # else its tasks never go on\n",
                "        if True:\n",
            ),
        ),
        ("tests/faults/test_exits.py",),
    ),
    Mutant(
        "error of one engine ends the end of the others",
        (
            Edit(
                "src_cython/drivers/blocking.pyx",
                ") noexcept:\n    # What it raises is printed",
                ") except *:\n    # What it raises is printed",
            ),
        ),
        ("tests/faults/test_exits.py",),
    ),
    Mutant(
        "exit: an engine that only its watcher holds is gone",
        (
            Edit(
                "src_cython/drivers/blocking.pyx",
                "            alive.append(engine)\n",
                "            alive.append(reference)\n",
            ),
            Edit(
                "src_cython/drivers/blocking.pyx",
                "    for engine in alive:\n",
                "    for reference in alive:\n"
                "        engine = reference()\n"
                "        if engine is None:\n"
                "            continue\n",
            ),
        ),
        ("tests/faults/test_exits.py",),
    ),
    Mutant(
        "exit: tasks of a loop in a daemon thread take locks to the last",
        (
            Edit(
                "src_cython/drivers/asyncio.pyx",
                "    if self.ending and not work_is_release(work):\n",
                "    if False:\n",
            ),
        ),
        ("tests/faults/test_exits.py",),
    ),
    Mutant(
        "release that is cancelled before its first step is dropped",
        (
            Edit(
                "src_cython/calls/call.pyx",
                "            if stage == CALL_NEW and self.is_sent_anyway():\n",
                "            if False:\n",
            ),
        ),
        ("tests/behaviour/test_cancelled_calls.py",),
    ),
    Mutant(
        "release_each that is interrupted while it begins is dropped",
        (
            Edit(
                "fastredlock/_locking/batch.py",
                "        if not self._leases:\n",
                "        if False:\n",
            ),
        ),
        ("tests/faults/test_callers.py",),
    ),
    Mutant(
        "interrupted acquire of a redis-py lock leaves its key",
        (
            Edit(
                "fastredlock/compat/redis/__init__.py",
                "            if drawn: ",
                "            if False: ",
            ),
        ),
        ("tests/faults/test_interrupted_locks.py",),
    ),
    Mutant(
        "close: the work of followers is forgotten with the waker",
        (
            Edit(
                "src_cython/master/link.pyx",
                "    self.is_sleeping = 0\n\n\ncdef void waker_wake(",
                "    self.is_sleeping = self.has_followers = 0\n\n\n"
                "cdef void waker_wake(",
            ),
        ),
        ("tests/behaviour/test_close_release.py",),
    ),
    Mutant(
        "exit: a thread that has a key which rested is not let go on",
        (
            Edit(
                "src_cython/drivers/blocking.pyx",
                "    if is_last and is_in_use:\n",
                "    if False:\n",
            ),
        ),
        ("tests/faults/test_exits.py",),
    ),
    Mutant(
        "release that is cancelled before its first step needs a driver",
        (
            Edit(
                "src_cython/calls/call.pyx",
                "                    self.here = call_here(self.driver)\n",
                "                    self.here = self.driver.current\n",
            ),
        ),
        ("tests/behaviour/test_loops.py",),
    ),
    Mutant(
        "end of a body that is not awaited forgotten",
        (
            Edit(
                "src_cython/calls/lease.pyx",
                "        return not self.blocks\n",
                "        return False\n",
            ),
        ),
        ("tests/faults/test_callers.py",),
    ),
    Mutant(
        "slots: looks outlast the time of the caller",
        (
            Edit(
                "fastredlock/_locking/attempt.py",
                "looks < (1 if is_late else LOOKS_MOST)",
                "looks < LOOKS_MOST",
            ),
        ),
        SLOTS,
    ),
    Mutant(
        "slots: a lease is handed on without its slot",
        (
            Edit(
                "src_cython/round/local.pyx",
                "    next.resource = taken.resource\n",
                "",
            ),
        ),
        SIM_SLOTS,
    ),
    Mutant(
        "slots: one rests",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                " or not kind_is(taken.kind, KIND_RESTS):\n",
                ":\n",
            ),
        ),
        SIM_SLOTS,
    ),
    Mutant(
        "slots: a push finds those alone who have tried one",
        (
            Edit(
                "src_cython/waiting/turns.pyx",
                "        if name in self.queues.by_resource or name in",
                "        if name in",
            ),
        ),
        SLOTS,
    ),
    Mutant(
        "slots: a grant does not notify of the next free one",
        (
            Edit(
                "fastredlock/_options/scripts.py",
                "  if KEYS[2] then notify_next_slot() end\n  return 1\n",
                "  return 1\n",
            ),
            TAKE_TURN_SHA1_ANEW,
        ),
        MODEL,
    ),
    Mutant(
        "rate: its slots are released",
        (
            Edit(
                "fastredlock/_locking/slots.py",
                "            return Permit(lease)\n        except",
                "            lease.release()  # type: ignore[attr-defined]\n"
                "            return Permit(lease)\n        except",
            ),
        ),
        (*SIM_SLOTS, *RATES),
    ),
    Mutant(
        "rate: a permit for the whole life of its key",
        (
            Edit(
                "fastredlock/_locking/slots.py",
                "drift_ns = settings.drift_ns(ttl_ms) + per_ns",
                "drift_ns = settings.drift_ns(ttl_ms)",
            ),
        ),
        RATES,
    ),
    Mutant(
        "rate: its keys live for the window alone",
        (
            Edit(
                "fastredlock/_locking/slots.py",
                "kept_ns = per_ns + act_ns + FIXED_DRIFT_NS",
                "kept_ns = per_ns",
            ),
            Edit(
                "fastredlock/_locking/slots.py",
                "drift_ns = settings.drift_ns(ttl_ms) + per_ns",
                "drift_ns = ttl_ms * NS_PER_MS - act_ns",
            ),
        ),
        RATES,
    ),
    Mutant(
        "rate: a permit that does not end",
        (
            Edit(
                "fastredlock/_locking/slots.py",
                "left_ns = self._round.valid_until_ns - self._driver.now_ns()\n",
                "left_ns = self._round.terms.ttl_ms * NS_PER_MS\n",
            ),
        ),
        ("tests/behaviour/test_rate.py",),
    ),
    Mutant(
        "model: a grant does not notify of the next free slot",
        (
            Edit(
                "fastredlock/testing/_queue.py",
                "self._notify_next_slot(int(permits))\n            return 1\n",
                "return 1\n",
            ),
        ),
        MODEL,
    ),
)
