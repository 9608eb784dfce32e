"""The mutants: mistakes that lock libraries were made with, to be put into our source.

`hazards.md` and `peers.md` say whose they were. Each edit replaces a text that stands
in its file exactly once; where it does not any more, the mutant is stale and has to be
written anew, and tests/mutants/test_mutants.py says so.
"""

from __future__ import annotations

from typing import NamedTuple


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
                "    debts_carry(self, round, entry.key_until_ns, now_ns)\n",
                "    pass\n",
            ),
        ),
        REPLIES,
    ),
    Mutant(
        "release carried for a ttl from its own beginning",
        (
            Edit(
                "src_cython/debts.pyx",
                "now_ns + release.terms.ttl_ms * NS_PER_MS + release.terms.drift_ns",
                "release.opened_ns + release.terms.ttl_ms * NS_PER_MS",
            ),
        ),
        REPLIES,
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
                "return engine_queue(self, release, release.may_hold, now_ns)",
                "for i in range(self.master_count):\n"
                "        if round.cells[i].vote != VOTE_GRANTED:\n"
                "            release.may_hold &= ~(<uint64_t>1 << i)\n"
                "    return engine_queue(self, release, release.may_hold, now_ns)",
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
                "            if now_ns < master.votes_from_ns",
                "        if round.operation_code == OPERATION_RELEASE and "
                "master.debts.count:\n"
                '            master_on_lost(master, "released elsewhere", now_ns)\n'
                "        if master.state_code == MASTER_READY:\n"
                "            if now_ns < master.votes_from_ns",
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
                "src_cython/threads.pyx",
                "    if self.generation == current_generation:\n",
                "    if True:\n",
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
        (Edit("src_cython/master.pyx", " and not round.is_inner\n", "\n"),),
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
                '"px", ARGV[2]) end\n',
                '"px", ARGV[2])\nend\n',
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
                "if now_ns < master.votes_from_ns and (",
                "if False and (",
            ),
        ),
        ("tests/setups/test_restart_guard.py",),
    ),
    Mutant(
        "one server with two names has two votes",
        (
            Edit(
                "src_cython/engine.pyx",
                "other.facts.run_id == master.facts.run_id",
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
)
