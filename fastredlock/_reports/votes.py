"""The vote of one master in one round, for people and for programs."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from math import inf
from time import gmtime, strftime, time
from typing import Any, NamedTuple

try:  # what hashlib itself has where there is no OpenSSL, which takes 4 ms to load
    from _sha2 import sha256  # type: ignore[import-not-found]
except ImportError:  # before Python 3.12
    from _sha256 import sha256  # type: ignore[import-not-found]

from .._core import (
    Electorate,
    Engine,
    MasterState,
    Round,
    Verdict,
    Vote,
    has_quorum,
)

# Of a lease: one resource, or all of several.
Resource = str | bytes | tuple[str | bytes, ...]
SHOWN_RESOURCES = 5  # of many in a message
SHOWN_LENGTH = 200  # of one
RANDOM_LENGTH = 27  # of a token of ours: see src_cython/base.pyx
LINGERING_LENGTH = 18  # before it where the key may linger: src_cython/waiting/idle.pyx
LINGERS = "lingers: it may be idle there, and is given up when another asks"
BASE64URL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
LONGEST_OWNER = 64  # bytes
LONGEST_AGE = 18  # digits
TIME_LENGTH = 11  # behind the owner: "~" and the second of the grant
NO_EXPIRY_MS, NO_KEY_MS = -1, -2  # PTTL
GONE_OR_TAKEN = "gone or taken"  # of an extension by a command that cannot tell
NOT_AWAITED = "connected, not waited for: no quorum could answer"
SHORT = {GONE_OR_TAKEN: GONE_OR_TAKEN, NOT_AWAITED: "not waited for"}
EMPTY = "an empty value: no token"
NOT_OURS = "no expiry: not a lock of ours?"  # a string that names no owner
SETNX = "no expiry: a SETNX lock, its time {} {:.0f} s{}?"  # a string that is a time
TIME_DIGITS = 10, 13  # of a time in s, in ms
MOST_READERS = 1000  # of one master, in a reply of scripts.INSPECT


class MasterVote(NamedTuple):
    """Hold the vote of one master in one round.

    `master` is its name without user or password; `text` the error reply or the reason
    of a FAILED or SILENT vote, else None; `elapsed_ms` the time from the first write of
    the round to this answer, None without one. While the list of masters changes
    (`changing_to`), `only_in` is "old" or "new" for a master that is in one list only,
    else None. `holders()` and a taken lock have the others: `token_hash` (first 16 hex
    digits of the token's SHA-256; None if nobody holds the resource there, or if the
    value is no token: then `text` describes it), `remaining_ms` (-1 for a key without
    expiry, -2 for none), `waiting` (how many processes wait in turn, None if not
    known), `owner` (that the holder gave, else None), `since` (s of Unix time of the
    grant, by the clock of the holder's host; None for other clients, and owners of more
    than 53 bytes), `is_shared` (True for a reader, who shares the lock with those of
    the master's other rows).
    """

    master: str
    vote: Vote
    text: str | None = None
    elapsed_ms: float | None = None
    token_hash: str | None = None
    remaining_ms: int | None = None
    waiting: int | None = None
    owner: str | None = None
    only_in: str | None = None
    since: int | None = None
    is_shared: bool = False

    def __str__(self) -> str:
        after = "" if self.elapsed_ms is None else f" in {self.elapsed_ms:.1f} ms"
        text = self.text or (f"held by {self.owner}" if self.owner else "")
        reason = f" ({text})" if text else ""
        return f"{self.master} {self.vote.name}{after}{reason}"


def votes_of(engine: Engine, round: Round) -> tuple[MasterVote, ...]:
    """Return one vote per configured master, in that order, as known by now."""
    within_ms = (round.deadline_ns - round.opened_ns or round.terms.timeout_ns) / 1e6
    votes = []
    for master, (vote, text, elapsed_ms), (late_us, last_error), (state, reason) in zip(
        masters_of(engine), round.votes(), engine.faults, engine.states, strict=True
    ):
        if vote is Vote.SILENT and not text:
            late = f", an earlier reply took {late_us / 1e3:.0f} ms" if late_us else ""
            text = f"no reply within {within_ms:.0f} ms{late}"
        elif vote is Vote.PENDING and round.verdict is Verdict.UNREACHABLE:
            text = NOT_AWAITED if state is MasterState.READY else text or reason
            if reason and reason == last_error:  # it has failed, if not in this round
                vote = Vote.FAILED
        if isinstance(text, bytes):
            text = broken_text(text)
        votes.append(master._replace(vote=vote, text=text, elapsed_ms=elapsed_ms))
    return tuple(votes)


def masters_of(engine: Engine) -> list[MasterVote]:
    """Return one vote per configured master, in that order, with its name and lists."""
    only_in = engine.electorate.only_in
    return [
        MasterVote(name, Vote.PENDING, only_in=only_in(index))
        for index, name in enumerate(engine.master_names)
    ]


def electorate_of(votes: Sequence[MasterVote]) -> Electorate:
    """Return who votes, from the votes of each master; there is one at least."""
    lists = {vote.master: vote.only_in for vote in votes}.values()
    old = sum((only_in != "new") << index for index, only_in in enumerate(lists))
    new = sum((only_in != "old") << index for index, only_in in enumerate(lists))
    return Electorate(len(lists), old, new)


def is_quorum(votes: Sequence[MasterVote], counts: Callable[[MasterVote], Any]) -> bool:
    """Return whether a quorum of masters has a vote that counts; not of no votes."""
    counted = dict.fromkeys((vote.master for vote in votes), False)
    counted |= {vote.master: True for vote in votes if counts(vote)}
    return bool(votes) and has_quorum(counted.values(), electorate_of(votes))


def quorum_left_ms(votes: Sequence[MasterVote], token_hash: str) -> float | None:
    """Return for how long (ms) a quorum has this token; inf: without expiry.

    None where no quorum has it.
    """
    left: dict[str, float | None] = dict.fromkeys(vote.master for vote in votes)
    left |= {
        vote.master: lives_ms(vote) for vote in votes if vote.token_hash == token_hash
    }
    return quorum_value([*left.values()], electorate_of(votes))


def lives_ms(vote: MasterVote) -> float:
    """Return for how long (ms) its key lives; inf: without expiry."""
    return inf if vote.remaining_ms == NO_EXPIRY_MS else vote.remaining_ms or 0


def holders_of(engine: Engine, round: Round) -> tuple[MasterVote, ...]:
    return tuple(
        row
        for vote, (_, details, _) in zip(
            votes_of(engine, round), round.votes(), strict=True
        )
        for row in rows_of(vote, details)
    )


def rows_of(vote: MasterVote, reply: object) -> list[MasterVote]:
    """Return the vote for each row in a reply of scripts.INSPECT; one at least."""
    if not isinstance(reply, list):
        return [vote]
    *rows, waiting = reply
    vote = vote._replace(text=None, waiting=None if waiting < 0 else waiting)
    free = vote._replace(remaining_ms=NO_KEY_MS)
    return [row_of(vote, *row) for row in rows] or [free]


def with_holders(
    votes: Sequence[MasterVote], seen: Iterable[MasterVote]
) -> tuple[MasterVote, ...]:
    """Return the votes, each TAKEN one as a look of its master saw a holder since."""
    named = {vote.master: vote for vote in seen if vote.owner}
    return tuple(
        named.get(vote.master, vote) if vote.vote is Vote.TAKEN else vote
        for vote in votes
    )


def holder_text(votes: Sequence[MasterVote]) -> str:
    """Name the holder that a quorum has seen; "": none, or it names no owner."""
    for seen in votes:
        same = [vote.token_hash == seen.token_hash for vote in votes]
        if seen.owner and has_quorum(same, electorate_of(votes)):
            since = "" if seen.since is None else f" since {in_utc(seen.since)}"
            return f"{seen.owner} has {'read' if seen.is_shared else 'held'} it{since}"
    return ""


def in_utc(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(seconds))


def row_of(vote: MasterVote, value: bytes, remaining_ms: int) -> MasterVote:
    """Read a row of scripts.INSPECT: the lines of a value, or only its length."""
    vote = vote._replace(remaining_ms=remaining_ms, is_shared=is_reader(value))
    token = token_of(value)
    if token is None:
        size = value[1:].decode(errors="replace")
        return vote._replace(text=f"a value of {size} bytes: no token")
    has_no_expiry = remaining_ms == NO_EXPIRY_MS
    text = EMPTY if not token else setnx_text(token) if has_no_expiry else None
    if lingers(token):
        text = LINGERS
    owner, since = owner_of(token)
    return vote._replace(text=text, token_hash=hash_of(token), owner=owner, since=since)


def setnx_text(token: bytes) -> str | None:
    """Describe a lock of SETNX and GETSET, whose value is its end; None: it is none."""
    digits = len(token.partition(b".")[0])
    if digits not in TIME_DIGITS or not token.replace(b".", b"", 1).isdigit():
        return None
    left = float(token) / (1 if digits == TIME_DIGITS[0] else 1000) - time()
    return SETNX.format(
        *("ends in", left, "") if left > 0 else ("ended", -left, " ago")
    )


def token_of(value: bytes) -> bytes | None:
    """Return the token in a row of scripts.INSPECT, None of a value that is none."""
    return None if value[:1] == b"#" else value[1:].replace(b"\n=", b"\n")


def is_reader(value: bytes) -> bool:
    return value[:1] == b"&"


def tokens_of(inspected: Round) -> dict[str, tuple[bytes, bool]]:
    """Return each token by its hash, and whether it is a reader's."""
    values = [
        value
        for _, reply, _ in inspected.votes()
        if isinstance(reply, list)
        for value, _ in reply[:-1]
    ]
    tokens = [(token_of(value), is_reader(value)) for value in values]
    return {hash_of(token): (token, reads) for token, reads in tokens if token}


def quorum_value(
    values: Sequence[float | None], electorate: Electorate
) -> float | None:
    """Return what a quorum has at least, of one for each master; None: nothing."""
    known = (value for value in values if value is not None)
    for least in sorted(known, reverse=True):
        have = [value is not None and value >= least for value in values]
        if has_quorum(have, electorate):
            return least
    return None


def connection_votes(engine: Engine) -> tuple[MasterVote, ...]:
    return tuple(
        master._replace(vote=Vote.GRANTED)
        if state is MasterState.READY
        else master._replace(vote=Vote.FAILED, text=reason)
        for master, (state, reason) in zip(
            masters_of(engine), engine.states, strict=True
        )
    )


def hash_of(token: bytes) -> str:
    """Hash a token: holders can be compared, and not impersonated."""
    digest: str = sha256(token).hexdigest()
    return digest[:16]


def owner_of(token: bytes) -> tuple[str | None, int | None]:
    """Return the owner that a token of this package names, and when it was granted."""
    if lingers(token):
        token = token[LINGERING_LENGTH:]
    if token[RANDOM_LENGTH : RANDOM_LENGTH + 1] != b"@":
        return None, None
    owner = token[RANDOM_LENGTH + 1 :]
    if token[:RANDOM_LENGTH].strip(BASE64URL) or len(owner) > LONGEST_OWNER:
        return None, None
    owner, time = owner[:-TIME_LENGTH], owner[-TIME_LENGTH:]
    is_time = owner and time[:1] == b"~" and time[1:].isdigit()
    shown = (owner if is_time else owner + time).decode(errors="replace")
    if not shown.isprintable():
        return None, None
    return shown, int(time[1:]) if is_time else None


def lingers(token: bytes) -> bool:
    """Return whether it begins with a process to recall it from."""
    name = token[1 : LINGERING_LENGTH - 1]
    ends = token[:1], token[LINGERING_LENGTH - 1 : LINGERING_LENGTH]
    return ends == (b"~", b"~") and not name.strip(b"0123456789abcdef")


def describe_votes(votes: Iterable[MasterVote]) -> str:
    votes = tuple(votes)
    names = [SHORT.get(vote.text or "", vote.vote.name.lower()) for vote in votes]
    last = SHORT[NOT_AWAITED]
    order = GONE_OR_TAKEN, "taken", "gone", "failed", "silent", "pending", last
    each = (f", {names.count(name)} {name}" for name in order if name in names)
    others = "".join(each)
    voted = "; ".join(map(str, votes))
    return f"{granted(votes)} granted{others} [{voted}]"


def granted(votes: Sequence[MasterVote]) -> str:
    """Count those who granted; where the list of masters changes, of each list."""
    lists = [[v.vote for v in votes if v.only_in != other] for other in ("new", "old")]
    old, new = (f"{each.count(Vote.GRANTED)} of {len(each)}" for each in lists)
    is_changing = any(vote.only_in for vote in votes)
    return f"{old} of the old list, {new} of the new" if is_changing else old


def broken_text(reply: bytes) -> str:
    """Return who broke a lock, as the scripts of extensions reply."""
    age_ms, _, by = reply[1:].decode(errors="replace").partition(" ")
    if not age_ms.isdecimal() or len(age_ms) > LONGEST_AGE or not by.isprintable():
        return "broken"
    return f"broken by {by[:LONGEST_OWNER]} {int(age_ms) / 1e3:.0f} s ago"


def loss(votes: Iterable[MasterVote] = ()) -> str:
    """Return the reason of a lease whose key a quorum has no more, by what was seen."""
    votes = tuple(votes)
    for vote in votes:
        if vote.vote is Vote.GONE and vote.text:  # it was broken
            return f"lost: {vote.text}"
    sure = {vote.vote for vote in votes if vote.text != GONE_OR_TAKEN}
    seen = sure & {Vote.GONE, Vote.TAKEN}
    if seen == {Vote.GONE}:
        return "lost: its key is gone: expired or deleted"
    if seen == {Vote.TAKEN}:
        return "lost: taken by another"
    return "lost: expired or taken by another"


def printable(resource: Resource) -> str:
    """Show a resource in a message, whatever its bytes are; of many, the first."""
    if isinstance(resource, tuple):
        shown = [printable(each) for each in resource[:SHOWN_RESOURCES]]
        unshown = len(resource) - len(shown)
        return ", ".join(shown) + (f" and {unshown} more" if unshown else "")
    if isinstance(resource, bytes):
        resource = resource[: 4 * SHOWN_LENGTH + 1].decode("utf-8", "backslashreplace")
    if len(resource) > SHOWN_LENGTH:
        return f"{resource[:SHOWN_LENGTH]!r}..."
    return repr(resource)


def shown(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a `__repr__` that names the class alone where its object is not complete.

    As where a constructor raised, or `__new__` alone was called, as by copy and pickle.
    """

    @wraps(text)
    def never_raises(self: Any) -> str:
        try:
            return text(self)
        except Exception:
            return f"<{type(self).__name__}, not complete>"

    return never_raises
