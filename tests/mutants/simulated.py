"""Plant each bug in a private copy and tell the seed of the simulator that shows it.

    python -m tests.mutants.simulated [--only WORD] [--seconds 120]

Prints the rows of the table in tests/sim/README.md. Most are mutants, which have tests
of every kind against them; here the simulator is alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .catalogue import MUTANTS, Edit, Mutant
from .workshop import Workshop

SCHEDULES = 1500
EDITS = {mutant.name: mutant.edits for mutant in MUTANTS}


def planted(name: str, file: str, old: str, new: str) -> Mutant:
    """Make a bug of one edit."""
    return Mutant(name, (Edit(file, old, new),), ())


def known(name: str, mutant: str) -> Mutant:
    """Take a bug from the mutants."""
    return Mutant(name, EDITS[mutant], ())


BUGS = (
    known("no roll-back of a lost round", "no roll-back"),
    known(
        "a late reply does not pop its entry of the FIFO",
        "connection reused after a timeout without counting",
    ),
    known("quorum of the reachable masters", "quorum of the reachable"),
    known("no validity check at the end of a round", "no validity check"),
    planted(
        "validity from the reply instead of from t0",
        "src_cython/round/round.pyx",
        "    return self.opened_ns + self.terms.ttl_ms",
        "    return (self.closed_ns or self.opened_ns) + self.terms.ttl_ms",
    ),
    known("drift not taken off", "no drift taken off the validity"),
    planted(
        "quorum of N // 2 where N is even",
        "src_cython/waiting/queue.pyx",
        "    return self.master_count // 2 + 1",
        "    return (self.master_count + 1) // 2",
    ),
    known("one token for all rounds of an acquire", "retry re-uses the token"),
    known(
        "an unanswered release not deferred to the next connection",
        "release of a lost connection forgotten",
    ),
    known(
        "...deferred for a ttl from its own beginning",
        "release deferred for a ttl from its own beginning",
    ),
    planted(
        "...for the last ttl instead of the longest",
        "src_cython/calls/fields.pyx",
        "<Terms?>extensions.longest_terms",
        "<Terms?>extensions.terms",
    ),
    known("NOSCRIPT not repeated", "NOSCRIPT not repeated"),
    known(
        "an acquire of several keys repeated behind its release",
        "acquire by a script repeated behind its release",
    ),
    known("a release of the first of several keys", "release of the first key only"),
    known("an extension of the first of several keys", "extend of the first key only"),
    known(
        "a connection with a reply outstanding for ever not closed",
        "overdue connection never given up",
    ),
    planted(
        "an interrupted round not undone",
        "src_cython/engine/pass.pyx",
        "    engine_roll_back(self, round, now_ns)\n    if round.is_opened and",
        "    if round.is_opened and",
    ),
    known("restart guard off", "restart guard ignored"),
    planted(
        "GONE by the votes of fewer than a quorum",
        "src_cython/round/round.pyx",
        "            self.master_count - self.counts[VOTE_TAKEN] < "
        "round_quorum(self)\n",
        "            True\n",
    ),
    planted(
        "a late shorter extension forgotten",
        "fastredlock/_locking/validity.py",
        "        if shorter and not is_firm(round, shorter):",
        "        if False:",
    ),
    known(
        "an extension counts that is confirmed after the old validity",
        "extend counts after the validity is over",
    ),
    planted(
        "releases forgotten where a frozen server's connection is given up",
        "src_cython/master/in_flight.pyx",
        "        deferred_add(self, round, entry.key_until_ns, True)\n",
        '        if not reason.startswith("owed a reply"):\n'
        "            deferred_add(self, round, entry.key_until_ns, True)\n",
    ),
    planted(
        "a master that is silent is taken for one that refused",
        "src_cython/round/round.pyx",
        "            self.cells[i].vote = VOTE_SILENT\n",
        "            self.cells[i].vote = VOTE_SILENT\n"
        "            self.may_hold &= ~(<uint64_t>1 << i)\n",
    ),
    planted(
        "close() does not wait for the replies to releases",
        "src_cython/engine/masters.pyx",
        "        if (<Master>master).in_flight.count:\n",
        "        if False and (<Master>master).in_flight.count:\n",
    ),
    planted(
        "a round's deadline noted by nobody",
        "src_cython/engine/masters.pyx",
        "    engine_note_time(self, round.deadline_ns)\n",
        "",
    ),
    known("a told waiter skips the quorum", "told waiter skips the quorum"),
    known("a refusal of the gate is no veto", "refusal of the gate is no veto"),
    known("a push counted as a reply", "push counted as a reply"),
    known("a gate not asked again for 25 s", "gate not asked again for 25 s"),
    known(
        "a loss told by the failed renewal only", "loss told by the failed renewal only"
    ),
    known(
        "a loss told 30 ms after the end of the validity",
        "loss told 30 ms after the end of the validity",
    ),
    known(
        "a first try that was not won taken for a lease",
        "first try that was not won taken for a lease",
    ),
    known(
        "the end of a body that does not look at the validity",
        "end of a with block in C that does not look at the validity",
    ),
    known(
        "a release that is not sent where an exception leaves it",
        "release in C that is not sent where an exception leaves it",
    ),
    planted(
        "an awaited acquire that is cancelled is not undone",
        "src_cython/calls/acquire.pyx",
        "        return 0 if self.blocks else self.take_back()\n",
        "        return 0\n",
    ),
    planted(
        "a cancelled awaited release is not sent",
        "src_cython/calls/lease.pyx",
        "    return call_abandon(self, self.round)\n",
        "    return 0\n",
    ),
    known(
        "votes for several slots counted together",
        "slots: votes for several of them counted together",
    ),
    known(
        "a slot beyond what its caller asked for",
        "slots: one beyond what its caller asked for",
    ),
    known(
        "a permit for the whole life of its key",
        "rate: a permit for the whole life of its key",
    ),
    known(
        "slots of a rate that live for the window alone",
        "rate: its keys live for the window alone",
    ),
    known("slots of a rate that are released", "rate: its slots are released"),
    known("a number that no quorum has", "number that no quorum has"),
    known(
        "a number that is repeated where the clock is behind",
        "number that is repeated where the clock is behind",
    ),
)


def main() -> int:
    """Return 0: which bugs the simulator alone finds is for the reader."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.simulated", description=__doc__
    )
    parser.add_argument("--only", default="", help="a part of the bugs' names")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each bug")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="planted-") as folder:
        workshop = Workshop(Path(folder))
        for bug in BUGS:
            if options.only in bug.name:
                found = workshop.with_mistake(
                    bug, lambda: simulate(workshop.folder, options.seconds)
                )
                print(f"| {bug.name} | {found} |", flush=True)
    return 0


def simulate(folder: Path, seconds: float) -> str:
    """Run schedules in the copy; return what the first violation says."""
    argv = [sys.executable, "-m", "tests.sim", "--count", str(SCHEDULES), "--compiled"]
    done = subprocess.run(
        [*argv, "--seconds", str(seconds)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
