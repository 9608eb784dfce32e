"""The mutants: mistakes that lock libraries were made with, to be put into our source.

`hazards.md` and `peers.md` say whose they were. Each edit replaces a text that stands
in its file exactly once; where it does not any more, the mutant is stale and has to be
written anew, and tests/mutants/test_mutants.py says so.
"""

from __future__ import annotations

from hashlib import sha1
from typing import NamedTuple

from fastredlock import scripts


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


ROUND = ("tests/core/test_round.py", "tests/setups/test_promises.py", "tests/sim")
OUTAGES = ("tests/behaviour/test_outages.py", "tests/behaviour/test_pauses.py")
REPLIES = ("tests/setups/test_promises.py", "tests/sim", *OUTAGES)
ROLL_BACK = "return engine_queue(self, release, release.may_hold, True, now_ns)"
ASKED_AGAIN = ("tests/setups/test_asked_again.py",)
LEASE = (
    "tests/core/test_lease.py",
    "tests/setups/test_promises.py",
    "tests/behaviour/test_release.py",
)

MUTANTS = (
    Mutant(
        "wall clock instead of monotonic",
        (
            Edit(
                "src_cython/clock.pyx",
                "clock_gettime(FASTREDLOCK_CLOCK, &now)",
                "clock_gettime(0, &now)",
            ),
        ),
        ("tests/setups/test_promises.py", "tests/behaviour/test_expiry.py"),
    ),
    Mutant(
        "no validity check",
        (
            Edit(
                "src_cython/round.pyx",
                "    if round_valid_until_ns(self) <= now_ns:",
                "    if False and round_valid_until_ns(self) <= now_ns:",
            ),
        ),
        ROUND,
    ),
    Mutant(
        "validity not checked again before the return",
        (Edit("src_cython/engine.pyx", "    round_confirm(round, now_ns)\n", ""),),
        ("tests/setups/test_promises.py", "tests/core", "tests/sim"),
    ),
    Mutant(
        "no drift taken off the validity",
        (
            Edit(
                "src_cython/round.pyx",
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
                "src_cython/round.pyx",
                "    elif granted >= self.quorum:\n",
                "    elif 2 * granted > self.master_count - self.counts[3]:\n",
            ),
            Edit(
                "src_cython/round.pyx",
                "    elif granted + pending < self.quorum:\n",
                "    elif pending == 0:\n",
            ),
        ),
        (*ROUND, *OUTAGES),
    ),
    Mutant(
        "SET without NX",
        (
            Edit(
                "src_cython/command.pyx",
                r'b"*6\r\n$3\r\nSET\r\n"',
                r'b"*5\r\n$3\r\nSET\r\n"',
            ),
            Edit(
                "src_cython/command.pyx",
                r'b"$2\r\nNX\r\n$2\r\nPX\r\n", 16',
                r'b"$2\r\nPX\r\n", 8',
            ),
        ),
        ("tests/core/test_command.py", "tests/behaviour/test_exclusion.py"),
    ),
    Mutant(
        "DEL without token check",
        (
            Edit(
                "fastredlock/scripts.py",
                "b'if redis.call(\"get\",KEYS[1])==ARGV[1] then '\n"
                "    b'return redis.call(\"del\",KEYS[1]) else return 0 end'\n",
                "b'return redis.call(\"del\",KEYS[1])'\n",
            ),
            Edit(
                "fastredlock/scripts.py",
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
                "fastredlock/scripts.py",
                "b'return redis.call(\"pexpire\",KEYS[1],ARGV[2]) else return 0 end'\n",
                "b'return redis.call(\"pexpire\",KEYS[1],ARGV[2]) else return '\n"
                '    b\'redis.call("set",KEYS[1],ARGV[1],"NX","PX",ARGV[2]) \'\n'
                "    b'and 1 or 0 end'\n",
            ),
            Edit(
                "fastredlock/scripts.py",
                'EXTEND_SHA1 = b"03be00070a274ed8e4d6ec301dc2dfa5556fc90c"',
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
                "fastredlock/lease.py",
                "is_in_time = self._is_adopted() or "
                "round.closed_ns < self._valid_until_ns",
                "is_in_time = True",
            ),
        ),
        ("tests/core/test_lease.py", "tests/setups/test_promises.py"),
    ),
    Mutant(
        "connection reused after a timeout without counting",
        (
            Edit(
                "src_cython/stream.pyx",
                "    # The debt first: bytes without an entry would shift every later "
                "reply.\n",
                "    cdef Debts debts = self.debts\n"
                "    while debts.count and debts.owed[debts.first].round and (\n"
                "        (<Round>debts.owed[debts.first].round).verdict_code\n"
                "        != VERDICT_OPEN\n"
                "    ):\n"
                "        owed_round(debts_pop(debts))\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "late reply voted to the newest entry",
        (
            Edit(
                "src_cython/debts.pyx",
                "    cdef Owed oldest = self.owed[self.first]\n"
                "    self.first = (self.first + 1) & (self.capacity - 1)\n"
                "    self.count -= 1\n",
                "    self.count -= 1\n"
                "    cdef Owed oldest = self.owed[\n"
                "        (self.first + self.count) & (self.capacity - 1)]\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "overdue connection never given up",
        (
            Edit(
                "src_cython/debts.pyx",
                "self.owed[self.first].overdue_ns < now_ns\n",
                "self.owed[self.first].overdue_ns < 0\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "token forgotten before the release is confirmed",
        (
            Edit(
                "fastredlock/lease.py",
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
                "src_cython/debts.pyx",
                "            debts_carry(self, round, entry.key_until_ns, True)\n",
                "            pass\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "release carried for a ttl from its own beginning",
        (
            Edit(
                "src_cython/debts.pyx",
                "now_ns + each.release.terms.ttl_ms * NS_PER_MS",
                "each.release.opened_ns + each.release.terms.ttl_ms * NS_PER_MS",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "release forgotten once its ttl is over, though the server was frozen",
        (
            Edit(
                "src_cython/debts.pyx",
                "    carried.key_until_ns = key_until_ns\n",
                "    carried.key_until_ns = min(\n"
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
                "src_cython/opening.pyx",
                "        master_kill_lost(self, now_ns)\n",
                "",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "connection of another killed: ids of a server that is another now",
        (
            Edit(
                "src_cython/stream.pyx",
                "    if self.lost_run_id is None or "
                "self.lost_run_id != self.facts.run_id:\n",
                "    if False:\n",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "lease lost by the word of one, another silent, of three",
        (
            Edit(
                "src_cython/round.pyx",
                "self.master_count - self.counts[VOTE_TAKEN] < self.quorum\n",
                "answered >= self.quorum\n",
            ),
        ),
        ("tests/core/test_round.py",),
    ),
    Mutant(
        "error to the second of two commands taken for an answer to the first",
        (
            Edit(
                "src_cython/master.pyx",
                "    if entry.is_second and round.operation_code <= OPERATION_EXTEND:\n"
                "        # What the first connection was given has been",
                "    if vote != VOTE_FAILED and entry.is_second and "
                "round.operation_code <= OPERATION_EXTEND:\n"
                "        # What the first connection was given has been",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "connection used while its server refuses everything",
        (
            Edit(
                "src_cython/handshake.pyx",
                "        if reply_is_error(reply) and text_is_of_now(str(reply)):\n",
                "        if False:\n",
            ),
        ),
        (*ASKED_AGAIN, "tests/core/test_handshake.py"),
    ),
    Mutant(
        "release that a busy server refused is not sent again",
        (
            Edit(
                "src_cython/master.pyx",
                "    if round.operation_code == OPERATION_RELEASE and "
                "text_is_of_now(str(reply)):\n",
                "    if False:\n",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "round failed at once where its connection was cut",
        (
            Edit(
                "src_cython/master.pyx",
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
                "fastredlock/scripts.py",
                "if held and held ~= ARGV[1] then",
                "if held then",
            ),
            Edit(
                "fastredlock/scripts.py",
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
                "src_cython/engine.pyx",
                "            master.debts.has_given_tokens = tokens_are_given\n",
                "",
            ),
        ),
        ("tests/behaviour/test_tokens.py",),
    ),
    Mutant(
        "release repeated after a lost reply counted as gone",
        (
            Edit(
                "src_cython/reply.pyx",
                "    if operation == OPERATION_RELEASE and vote == VOTE_TAKEN:\n",
                "    if False:\n",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "roll-back without its script's source",
        (
            Edit(
                "src_cython/engine.pyx",
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
                "src_cython/round.pyx",
                "    if 0 < self.left_ns < self.terms.timeout_ns:\n",
                "    if False:\n",
            ),
        ),
        ("tests/core/test_round.py", "tests/behaviour/test_long_pauses.py"),
    ),
    Mutant(
        "round timeout grows with the ttl without end",
        (
            Edit(
                "fastredlock/_settings.py",
                "min(share_ns, LONGEST_ROUND_TIMEOUT_NS)",
                "share_ns",
            ),
        ),
        ("tests/core/test_settings.py",),
    ),
    Mutant(
        "silent master kept for as long as it says nothing",
        (
            Edit(
                "src_cython/debts.pyx",
                "    return self.count >= IN_FLIGHT_MOST and (",
                "    return False and (",
            ),
        ),
        ASKED_AGAIN,
    ),
    Mutant(
        "no roll-back",
        (
            Edit(
                "src_cython/engine.pyx",
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
                "src_cython/engine.pyx",
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
                "src_cython/engine.pyx",
                "        if master.state_code == MASTER_READY:\n"
                "            if engine_is_withheld(master, round, now_ns)",
                "        if round.operation_code == OPERATION_RELEASE and "
                "master.debts.count:\n"
                '            master_on_lost(master, "released elsewhere", now_ns)\n'
                "        if master.state_code == MASTER_READY:\n"
                "            if engine_is_withheld(master, round, now_ns)",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "retry re-uses the token",
        (
            Edit(
                "fastredlock/_attempt.py",
                "    while True:\n",
                "    token = new_token()\n    while True:\n",
            ),
            Edit(
                "fastredlock/_attempt.py",
                "new_round(ACQUIRE, key, new_token(), terms)",
                "new_round(ACQUIRE, key, token, terms)",
            ),
        ),
        ("tests/core/test_attempt.py", "tests/behaviour/test_tokens.py"),
    ),
    Mutant(
        "interrupted round not rolled back",
        (
            Edit(
                "src_cython/threads.pyx",
                "    except BaseException:\n        engine_abandon(engine, work)\n",
                "    except BaseException:\n",
            ),
            Edit(
                "src_cython/context.pyx",
                "        engine_abandon(self._locks._engine, self.round)",
                "        pass",
            ),
        ),
        ("tests/behaviour/test_signals.py",),
    ),
    Mutant(
        "many at once not undone when one failed",
        (
            Edit(
                "src_cython/batch.pyx",
                "    return self.failure is not None and batch_is_given_up(self)\n",
                "    return False\n",
            ),
            Edit(
                "fastredlock/client.py",
                "            self._abandon(acquires.batch)",
                "            pass",
            ),
        ),
        ("tests/core/test_batch.py", "tests/behaviour/test_each.py"),
    ),
    Mutant(
        "all of many rounds under way at once",
        (
            Edit(
                "src_cython/batch.pyx",
                "self.under_way < self.window\n",
                "self.under_way >= 0\n",
            ),
        ),
        ("tests/core/test_batch.py",),
    ),
    Mutant(
        "forked child speaks on its parent's connections",
        (
            Edit(
                "src_cython/takeover.pyx",
                "    return 0 if self.generation == current_generation else "
                "engine_begin_anew(self)\n",
                "    return 0\n",
            ),
        ),
        ("tests/behaviour/test_fork.py",),
    ),
    Mutant(
        "lease valid in a forked child",
        (
            Edit(
                "fastredlock/lease.py",
                "            return 0.0  # a forked child has none of its parent's "
                "leases",
                "            pass",
            ),
        ),
        ("tests/behaviour/test_fork.py", "tests/core/test_lease.py"),
    ),
    Mutant(
        "error reply counted as taken",
        (
            Edit(
                "src_cython/reply.pyx",
                "            return VOTE_TAKEN\n    return VOTE_FAILED\n",
                "            return VOTE_TAKEN\n    return VOTE_TAKEN\n",
            ),
        ),
        ("tests/core/test_reply.py", "tests/setups/test_promises.py"),
    ),
    Mutant(
        "NOSCRIPT not repeated",
        (
            Edit(
                "src_cython/master.pyx",
                'str(reply).startswith("NOSCRIPT")',
                "False",
            ),
        ),
        ("tests/behaviour/test_release.py", *REPLIES),
    ),
    Mutant(
        "release closed at quorum though scripts are unknown",
        (
            Edit(
                "src_cython/round.pyx",
                "    elif self.needs_all and pending > 0:\n        return\n",
                "",
            ),
        ),
        ("tests/behaviour/test_release.py",),
    ),
    Mutant(
        "release inside of another waits for what that one reads",
        (Edit("src_cython/round.pyx", " and not self.is_inner:\n", ":\n"),),
        ("tests/setups/test_nested.py",),
    ),
    Mutant(
        "reply judged whose connection was lost in its making",
        (
            Edit(
                "src_cython/stream.pyx",
                "reply is INCOMPLETE or self.gets is not gets:",
                "reply is INCOMPLETE:",
            ),
        ),
        ("tests/setups/test_nested.py",),
    ),
    Mutant(
        "acquire by a script repeated behind its release",
        (
            Edit(
                "src_cython/round.pyx",
                "    return self.operation_code != OPERATION_ACQUIRE or (\n",
                "    return True or (\n",
            ),
        ),
        ("tests/setups/test_all_or_nothing.py",),
    ),
    Mutant(
        "key that is taken looked for after the first is set",
        (
            Edit(
                "fastredlock/scripts.py",
                """1 then return 0 end
end
for _, key in ipairs(KEYS) do redis""",
                """1 then return 0 end
  redis""",
            ),
            Edit(
                "fastredlock/scripts.py",
                '"px", ARGV[2]) end\nreturn 1"""\nACQUIRE_ALL_SHA1',
                '"px", ARGV[2])\nend\nreturn 1"""\nACQUIRE_ALL_SHA1',
            ),
        ),
        ("tests/behaviour/test_scripts_of_all.py",),
    ),
    Mutant(
        "release of the first key only",
        (Edit("src_cython/engine.pyx", "        release.keys = lease.keys\n", ""),),
        ("tests/setups/test_all_or_nothing.py", "tests/sim"),
    ),
    Mutant(
        "extend of the first key only",
        (Edit("src_cython/engine.pyx", "        extension.keys = lease.keys\n", ""),),
        ("tests/setups/test_all_or_nothing.py", "tests/sim"),
    ),
    Mutant(
        "restart guard ignored",
        (
            Edit(
                "src_cython/engine.pyx",
                "now_ns < master.votes_from_ns and round",
                "False and round",
            ),
        ),
        ("tests/setups/test_restart_guard.py",),
    ),
    Mutant(
        "one server with two names has two votes",
        (
            Edit(
                "src_cython/engine.pyx",
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
                "fastredlock/_tls.py",
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
                "src_cython/stream.pyx",
                "        if self.is_between_replies:\n",
                "        if True:\n",
            ),
        ),
        ("tests/core/test_batch.py",),
    ),
    Mutant(
        "another run id taken for the server of before",
        (
            Edit(
                "src_cython/guard.pyx",
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
                "src_cython/guard.pyx",
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
                "src_cython/guard.pyx",
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
                "fastredlock/scripts.py",
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
                "fastredlock/scripts.py",
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
                "src_cython/guard.pyx",
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
                "src_cython/handshake.pyx",
                "        self.failure = self.rights.refusal()\n",
                "",
            ),
        ),
        ("tests/core/test_handshake.py", "tests/setups/test_rights.py"),
    ),
    Mutant(
        "right that was taken away not noticed",
        (
            Edit(
                "src_cython/master.pyx",
                "    if not is_command or not is_first:\n",
                "    if True:\n",
            ),
        ),
        ("tests/setups/test_rights.py",),
    ),
    Mutant(
        "key that is forbidden taken for a command",
        (
            Edit(
                "src_cython/rights.pyx",
                "    return text_forbids(text) and any(",
                "    return text_forbids(text) or any(",
            ),
        ),
        ("tests/core/test_handshake.py", "tests/setups/test_rights.py"),
    ),
    Mutant(
        "NOAUTH to an unknown HELLO taken for a wrong password",
        (
            Edit(
                "src_cython/handshake.pyx",
                "            or self.password is not None and "
                'str(reply).startswith("NOAUTH")\n',
                "",
            ),
        ),
        ("tests/core/test_handshake.py", "tests/setups/test_wrong_setups.py"),
    ),
    Mutant(
        "silence of a server taken for its hanging up",
        (
            Edit(
                "src_cython/master.pyx",
                "            master_on_lost(self, handshake_silence(self), now_ns)\n",
                "            master_on_hung_up(self, self.reason, now_ns)\n",
            ),
        ),
        ("tests/setups/test_wrong_setups.py",),
    ),
    Mutant(
        "work submitted again where a look after a pause has done it",
        (
            Edit(
                "src_cython/batch.pyx",
                """    if work_is_submitted(work):
        work_set_waiter(work, waiter)
        return 0
""",
                "",
            ),
            Edit(
                "src_cython/engine.pyx",
                "    if round.is_opened or round.is_finished:\n",
                "    if round.is_finished:\n",
            ),
        ),
        ("tests/setups/test_nested.py", "tests/faults/test_processes.py"),
    ),
    Mutant(
        "round opened that was withdrawn before",
        (
            Edit(
                "src_cython/engine.pyx",
                "    if round.is_opened or round.is_finished:\n",
                "    if round.is_opened:\n",
            ),
        ),
        ("tests/setups/test_nested.py",),
    ),
    Mutant(
        "set sent behind the roll-back",
        (
            Edit(
                "src_cython/engine.pyx",
                "    if round.is_rolled_back:\n        round.is_rolled_back = False\n",
                "    if False:\n        round.is_rolled_back = False\n",
            ),
        ),
        ("tests/setups/test_nested.py",),
    ),
    Mutant(
        "interrupted before the first line of __exit__",
        (
            Edit("fastredlock/lease.py", "    @guard_exit\n", ""),
            Edit("fastredlock/lease.py", "    @guard_release\n", ""),
        ),
        ("tests/faults/test_callers.py",),
    ),
    Mutant(
        "interrupted before the first line of __aexit__",
        (Edit("fastredlock/_awaitable.py", "    @guard_async_exit\n", ""),),
        ("tests/faults/test_callers.py",),
    ),
    Mutant(
        "signals looked for while a reply is taken",
        (
            Edit(
                "src_cython/facts.pyx",
                "            now_s, now_us = int(reply[0]), int(reply[1])\n",
                "            now_us = int(reply[0]) * NS_PER_S + int(reply[1]) * 1000\n"
                "            now_s, now_us = now_us // NS_PER_S, int(reply[1])\n",
            ),
        ),
        ("tests/faults/test_processes.py",),
    ),
    Mutant(
        "call broken by a logging handler",
        (
            Edit(
                "fastredlock/_log.py",
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
                "src_cython/lookup.pyx",
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
                "src_cython/lookup.pyx",
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
                "src_cython/lookup.pyx",
                "        if look_ups.by_name.get(self.name) is self:",
                "        if False:",
            ),
        ),
        ("tests/faults/test_processes.py",),
    ),
    Mutant(
        "a greenlet taken for its thread",
        (
            Edit(
                "src_cython/crowd.pyx",
                "    return self.greenlet == 0 or hub_greenlet() in (0, self.greenlet)",
                "    return True",
            ),
        ),
        ("tests/faults/test_greenlets.py",),
    ),
    Mutant(
        "a greenlet that leads sleeps in the kernel",
        (
            Edit(
                "src_cython/wait.pyx",
                "cdef bint is_green = crowd_is_green(self.crowd)",
                "cdef bint is_green = False",
            ),
        ),
        ("tests/faults/test_greenlets.py",),
    ),
    Mutant(
        "a greenlet that follows sleeps in the kernel",
        (
            Edit(
                "src_cython/request.pyx",
                "self.is_green = hub_greenlet() != 0",
                "self.is_green = False",
            ),
        ),
        ("tests/faults/test_greenlets.py",),
    ),
    Mutant(
        "a forked copy of a leading greenlet goes on",
        (
            Edit(
                "src_cython/hub.pyx",
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
                "src_cython/given.pyx",
                "bit_count(late | unsettled) < self.quorum <= ready:",
                "bit_count(late | unsettled) < 0 <= ready:",
            ),
        ),
        ("tests/core/test_uses.py", "tests/faults/test_given_tokens.py"),
    ),
    Mutant(
        "given token sent to a master that may still release it",
        (
            Edit(
                "src_cython/given.pyx",
                "                late |= bit\n",
                "                unsettled |= bit\n",
            ),
        ),
        ("tests/faults/test_given_tokens.py",),
    ),
    Mutant(
        "given token sent again while its lease is valid",
        (
            Edit(
                "src_cython/given.pyx",
                "        if use_is_held(<TokenUse>use, now_ns):",
                "        if False and use_is_held(<TokenUse>use, now_ns):",
            ),
        ),
        ("tests/core/test_uses.py", "tests/faults/test_given_tokens.py"),
    ),
    Mutant(
        "lease released although its token was used again",
        (
            Edit(
                "src_cython/given.pyx",
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
        ("tests/compat/test_late_releases.py",),
    ),
    Mutant(
        "databases of one server taken outside compat",
        (
            Edit(
                "fastredlock/url.py",
                "    if isinstance(masters, SameServerAllowed):",
                "    if True:",
            ),
        ),
        ("tests/test_url.py", "tests/compat/test_one_server.py"),
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
        ("tests/compat/test_aioredlock_suite.py",),
    ),
    Mutant(
        "acquires under way not undone by close",
        (
            Edit(
                "src_cython/closing.pyx",
                '        engine_end_acquires(self, "closed", clock_ns())\n',
                "",
            ),
            Edit(
                "src_cython/loop.pyx",
                '        loop_end_acquires(self, "closed")\n',
                "",
            ),
        ),
        ("tests/behaviour/test_closing.py",),
    ),
    Mutant(
        "release refused after close",
        (
            Edit(
                "src_cython/threads.pyx",
                "        if self.is_closed and not work_is_release(work):\n",
                "        if self.is_closed:\n",
            ),
            Edit(
                "src_cython/loop.pyx",
                "            if not work_is_release(work):\n",
                "            if True:\n",
            ),
        ),
        ("tests/behaviour/test_closing.py",),
    ),
    Mutant(
        "undo of a batch does not wait for its replies",
        (
            Edit(
                "src_cython/threads.pyx",
                "            engine_send_off(engine)\n"
                "            engine_settle_undo(engine, work)\n",
                "            engine_send_off(engine)\n",
            ),
            Edit(
                "src_cython/exit.pyx",
                "    cdef int64_t until_ns = clock_ns() + EXIT_NS\n",
                "    return 0\n    cdef int64_t until_ns = clock_ns() + EXIT_NS\n",
            ),
            Edit(
                "src_cython/engine.pyx",
                "            engine_drain(self, clock_ns() + UNDO_NS)\n",
                "            pass\n",
            ),
        ),
        ("tests/faults/test_endings.py",),
    ),
    Mutant(
        "end of a multiprocessing child not watched",
        (
            Edit(
                "src_cython/exit.pyx",
                "    if util is not None: ",
                "    if False: ",
            ),
        ),
        ("tests/faults/test_endings.py",),
    ),
    Mutant(
        "stopped daemon thread waited for",
        (
            Edit(
                "src_cython/threads.pyx",
                "    return interpreter_is_finalizing() and engine_take_over(self)\n",
                "    return False\n",
            ),
        ),
        ("tests/faults/test_exits.py",),
    ),
    Mutant(
        "parsing goes on in a forked child",
        (
            Edit(
                "src_cython/takeover.pyx",
                "        self.links[i].is_parsing = False\n",
                "        pass\n",
            ),
        ),
        ("tests/faults/test_forks_inside.py",),
    ),
    Mutant(
        "forked child goes on with the step of its parent",
        (
            Edit(
                "src_cython/wait.pyx",
                "    engine_check_fork(self)\n    self.crowd.leader_at",
                "    self.crowd.leader_at",
            ),
        ),
        ("tests/faults/test_forks_inside.py",),
    ),
    Mutant(
        "value of a key told as it stands",
        (
            Edit(
                "fastredlock/scripts.py",
                'string.gsub(value, "\\\\n", "\\\\n=")',
                "value",
            ),
            Edit("fastredlock/votes.py", '.replace(b"\\n=", b"\\n")', ""),
            Edit(
                "fastredlock/scripts.py",
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
                "fastredlock/_settings.py",
                "        except UnicodeEncodeError:  # which keeps the value: "
                "no other error follows it\n            return None\n",
                "        except UnicodeEncodeError:\n"
                '            raise ConfigurationError("give bytes")\n',
            ),
        ),
        ("tests/core/test_values.py",),
    ),
    Mutant(
        "no connection for the releases of an interrupted one",
        (
            Edit(
                "src_cython/settlement.pyx",
                "        if master.failures == 0 and master_is_due(",
                "        if False and master_is_due(",
            ),
        ),
        ("tests/faults/test_tls_interrupts.py",),
    ),
    Mutant(
        "close() not told where its leader is killed",
        (
            Edit(
                "src_cython/threads.pyx",
                "        finally:      # a leader's greenlet may be killed in there",
                "        except OSError:\n"
                "            raise\n"
                "        else:      # a leader's greenlet may be killed in there",
            ),
        ),
        ("tests/faults/test_greenlets.py",),
    ),
)
