"""The first commands on a new connection, and the meaning of their replies."""

from __future__ import annotations

from itertools import product

import pytest
from hiredis import ReplyError

from fastredlock._core import Script, Scripts, ServerClock
from tests.support.by_hand import MS, S, commands_in
from tests.support.core import Handshake

NAMED = {
    name: Script(source, b"a" * 40)
    for name, source in (
        ("acquire_all", b"one"),
        ("extend", b"two"),
        ("extend_all", b"three"),
    )
}
INTRODUCTION = [
    [b"CLIENT", b"SETNAME", b"fastredlock"],
    [b"INFO"],
    [b"COMMAND", b"INFO", b"DELIFEQ", b"DELEX"],
    [b"SCRIPT", b"EXISTS", *[b"a" * 40] * 3],
]
HELLO_REPLY = {b"server": b"redis", b"proto": 3}
OLD_SERVER = ReplyError("ERR unknown command `HELLO`, with args beginning with: `3`, ")
WRONGPASS = ReplyError("WRONGPASS invalid username-password pair or user is disabled.")
NOAUTH = ReplyError("NOAUTH HELLO must be called with the client authenticated")
NO_LOGIN = "NOAUTH no password was given: redis://user:password@host"
WRONG_LOGIN = "WRONGPASS invalid username-password pair: correct it, or enable the user"


def new_handshake(
    username: bytes | None = None,
    password: bytes | None = None,
    db: int = 0,
    max_ttl_ns: int = 0,
    **more: Script,
) -> Handshake:
    scripts = Scripts(NAMED | more)
    return Handshake(username, password, db, b"fastredlock", scripts, max_ttl_ns)


def introduced(handshake: Handshake, reply: object = HELLO_REPLY) -> list[list[bytes]]:
    """Go as far as the answer to HELLO; return what is sent then."""
    handshake.start()
    return commands_in(handshake.on_reply(reply))


# ---- HELLO


@pytest.mark.parametrize(
    ("username", "password", "words"),
    [
        (None, b"p\r\nw", [b"default", b"p\r\nw"]),
        (b"", b"p", [b"default", b"p"]),
        (b"u", b"p", [b"u", b"p"]),
        (b"nopass", b"", [b"nopass", b""]),
    ],
)
def test_hello_carries_user_and_password_where_there_is_one(
    username: bytes | None, password: bytes, words: list[bytes]
) -> None:
    hello = commands_in(new_handshake(username, password).start())
    assert hello == [[b"HELLO", b"3", b"AUTH", *words]]


# ---- servers without HELLO 3


@pytest.mark.parametrize(
    "text",
    [
        str(OLD_SERVER),
        "ERR unknown command 'HELLO'",
        "ERR Unknown command 'HELLO'",
        "ERR unsupported command `hello`",
        "ERR wrong number of arguments for 'hello' command",
        "ERR Command is not available: 'HELLO'",
        "unsupported command 'HELLO'",
        "NOPROTO unsupported protocol version",
        "NOPERM this user has no permissions to run the 'hello' command",
    ],
)
def test_server_without_hello_is_spoken_to_in_resp2(text: str) -> None:
    handshake = new_handshake(db=1)
    assert introduced(handshake, ReplyError(text)) == [[b"SELECT", b"1"], *INTRODUCTION]
    assert handshake.failure is None


# Valkey 9 with HELLO renamed knows no command before a login, and says NOAUTH.
@pytest.mark.parametrize("text", [str(OLD_SERVER), "NOAUTH Authentication required."])
@pytest.mark.parametrize(
    ("username", "auth"), [(None, [b"AUTH", b"pw"]), (b"u", [b"AUTH", b"u", b"pw"])]
)
def test_server_without_hello_gets_auth_first(
    username: bytes | None, auth: list[bytes], text: str
) -> None:
    handshake = new_handshake(username, b"pw", 2)
    assert introduced(handshake, ReplyError(text)) == [auth]
    sent = commands_in(handshake.on_reply(b"OK"))
    assert sent == [[b"SELECT", b"2"], *INTRODUCTION]
    assert handshake.failure is None


# redis-py#1274: URLs of Heroku and others name a user, and the server has none.
@pytest.mark.parametrize("reply", [b"OK", ReplyError("ERR invalid password")])
def test_server_without_users_gets_the_password_alone(reply: object) -> None:
    handshake = new_handshake(b"h", b"pw")
    assert introduced(handshake, OLD_SERVER) == [[b"AUTH", b"h", b"pw"]]
    text = "ERR wrong number of arguments for 'auth' command"
    assert commands_in(handshake.on_reply(ReplyError(text))) == [[b"AUTH", b"pw"]]
    sent = commands_in(handshake.on_reply(reply))
    assert sent == (INTRODUCTION if reply == b"OK" else [])
    assert handshake.failure == (None if reply == b"OK" else f"AUTH: {reply}")


# ---- what ends it

UNEXPECTED = "unexpected reply of type %s"
ODD_REPLIES = [(b"OK", "bytes"), (1, "int"), (None, "NoneType"), (True, "bool")]


@pytest.mark.parametrize(
    ("password", "error", "failure"),
    [
        *((b"pw", ReplyError(text), text) for text in ("LOADING wait", "LOADING")),
        *(
            (None, ReplyError(text), text)
            for text in (
                "BUSY Redis is busy running a script",
                "MASTERDOWN Link with MASTER is down",
                "DENIED Redis is running in protected mode",
                "ERR max number of clients reached",
            )
        ),
        (b"pw", WRONGPASS, WRONG_LOGIN),
        (None, NOAUTH, NO_LOGIN),
        *((None, reply, UNEXPECTED % name) for reply, name in ODD_REPLIES),
    ],
)
def test_hello_that_is_refused_ends_the_handshake_with_its_text_or_the_remedy(
    password: bytes | None, error: object, failure: str
) -> None:
    handshake = new_handshake(None, password)
    assert introduced(handshake, error) == []
    assert handshake.failure == f"HELLO: {failure}"
    assert not handshake.is_done


@pytest.mark.parametrize(
    ("replies", "failure"),
    [
        ([WRONGPASS], f"AUTH: {WRONG_LOGIN}"),
        ([ReplyError("ERR invalid password")], "AUTH: ERR invalid password"),
        ([b"OK", ReplyError("ERR DB index is out of range")], "SELECT: ERR DB index"),
        ([b"OK", ReplyError("NOPERM no select")], "SELECT: NOPERM no select"),
        ([b"OK", ReplyError("ERR DB"), *[b"s"] * 4], "SELECT: ERR DB"),  # for good
    ],
)
def test_refused_auth_or_select_ends_the_handshake(
    replies: list[object], failure: str
) -> None:
    handshake = new_handshake(None, b"pw", 99)
    introduced(handshake, OLD_SERVER)
    for reply in replies:
        handshake.on_reply(reply)
    assert (handshake.failure or "").startswith(failure)
    assert not handshake.is_done


@pytest.mark.parametrize("failing", range(7))
def test_refused_name_or_script_is_tolerated(failing: int) -> None:
    handshake = new_handshake()
    introduced(handshake)
    for i in range(7):
        handshake.on_reply(ReplyError("NOPERM no") if i == failing else b"OK")
    assert (handshake.is_done, handshake.failure) == (True, None)


@pytest.mark.parametrize(
    ("known", "loaded"),
    [
        ([1, 1, 1], []),
        ([1, 0, 1], [b"two"]),
        ([0, 0, 0], [b"one", b"two", b"three"]),
        ([1, 1], [b"three"]),
        ([None, b"1", 2], [b"one", b"two", b"three"]),
        (ReplyError("NOPERM no"), [b"one", b"two", b"three"]),
        (b"OK", [b"one", b"two", b"three"]),
    ],
)
def test_script_that_the_server_lacks_is_loaded_and_no_other(
    known: object, loaded: list[bytes]
) -> None:
    """Seen: 1,000 waiters that connected again sent 15,010 SCRIPT LOADs in 20 s."""
    handshake = new_handshake()
    introduced(handshake)
    for reply in (b"OK", b"info", [None, None]):
        assert handshake.on_reply(reply) == b""
    sent = commands_in(handshake.on_reply(known))
    assert sent == [[b"SCRIPT", b"LOAD", source] for source in loaded]
    for _ in loaded:
        assert handshake.on_reply(b"sha") == b""
    assert (handshake.is_done, handshake.failure) == (True, None)


# ---- the commands that may stand for scripts


@pytest.mark.parametrize(
    ("reply", "form"),
    [
        ([None, None], 0),
        ([[b"delifeq", 3, []], None], 1),
        ([None, [b"DELEX", -2, []]], 2),
        ([[b"delifeq"], [b"delex"]], 1),
        ([[b"get"], None], 0),
        ([[], []], 0),
        ([[b"delifeq"]], 0),
        ([[None], [7]], 0),
        (ReplyError("NOPERM no"), 0),
        (b"OK", 0),
        (None, 0),
    ],
)
def test_server_tells_which_commands_it_has(reply: object, form: int) -> None:
    handshake = new_handshake()
    introduced(handshake)
    for each in (b"OK", b"info", reply, [1, 1, 1]):
        handshake.on_reply(each)
    assert (handshake.is_done, handshake.native) == (True, form)


# ---- what the user may not do, and the marker

PROBE, MARKER = Script(b"probe", b"b" * 40), Script(b"marker", b"c" * 40)
NOPERM = ReplyError("NOPERM this user has no permissions to run the 'x' command")
NO_KEY = ReplyError("NOPERM No permissions to access a key")
RUN_ID = b"run_id:abc\r\nuptime_in_seconds:9\r\n"


def asked(
    *, max_ttl_ns: int = 0, replies: tuple[object, ...], info: bytes = RUN_ID
) -> tuple[Handshake, list[list[bytes]]]:
    """Answer SCRIPT and the probe so; return what is sent then."""
    handshake = new_handshake(max_ttl_ns=max_ttl_ns, probe=PROBE, marker=MARKER)
    introduced(handshake)
    load, *probed = replies
    exists = load if isinstance(load, ReplyError) else [1, 1, 1]
    *first, last = b"OK", info, [None, None], exists, *probed
    for reply in first:
        assert handshake.on_reply(reply) == b""
    sent = commands_in(handshake.on_reply(last))
    if sent and sent[0][:2] == [b"SCRIPT", b"LOAD"]:
        sent = [commands_in(handshake.on_reply(load)) for _ in sent][-1]
    return handshake, sent


@pytest.mark.parametrize(
    "replies",
    [
        (b"sha", [], []),
        (NOPERM, [], []),  # no SCRIPT LOAD: EVAL loads it
        (b"sha", NOPERM, []),  # no EVAL: it is loaded
        (b"sha", [b"NOPERM No permissions to access a key", str(NO_KEY).encode()], []),
        (b"sha", [b"READONLY You can't write against a read only replica."], []),
        (b"sha", [b"DEL: ERR a: MISCONF Redis is configured to save"], []),
        (b"sha", [b"GET: ERR Script attempted to access a non local key"], []),
        (b"sha", 1, 1),  # of a release script that is not ours
        (b"sha", [], ReplyError("NOSCRIPT flushed just now")),
    ],
)
def test_user_that_may_release_is_not_refused(replies: tuple[object, ...]) -> None:
    handshake, _ = asked(replies=replies)
    assert (handshake.is_done, handshake.failure) == (True, None)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        *product(["BUSY Redis is busy", "LOADING Redis is loading"], range(3)),
        *product(["OOM command not allowed", "MASTERDOWN Link", "MISCONF x"], (1, 2)),
    ],
)
def test_server_that_refuses_all_for_now_is_not_ready(text: str, place: int) -> None:
    """Commands that wait for the connection would be refused, too, and be lost."""
    replies: list[object] = [b"sha", [], []]
    replies[place] = ReplyError(text)
    handshake, _ = asked(replies=tuple(replies[: place + 1]))
    assert not handshake.is_done
    assert (handshake.failure or "").endswith(f": {text}")
    assert handshake.warnings() == []


UNKNOWN = ReplyError("ERR unknown command `EVALSHA`, with args beginning with: `b`")
NO_GET = b"GET: ERR Unknown Redis command called from script"
ITS_USER, CANNOT = "its user may not release locks (", "cannot release locks ("


@pytest.mark.parametrize(
    ("replies", "begins", "named"),
    [
        ((b"sha", [], NOPERM), ITS_USER, ": grant +evalsha"),
        ((b"sha", NOPERM, NOPERM), ITS_USER, ": grant +evalsha +eval"),
        ((NOPERM, NOPERM, ReplyError("NOSCRIPT No")), ITS_USER, ": grant +eval"),
        ((b"sha", [b"DEL: ERR ACL failure in script: User u has no permissions to run "
                   b"the 'del' command"], []), ITS_USER, ": grant +get +del"),
        ((b"sha", [], [b"ERR The user executing the script can't run this command or "
                       b"subcommand"]), ITS_USER, ": grant +get +del"),
        ((b"sha", [], UNKNOWN), CANNOT, "(EVALSHA: ERR unknown command `EVALSHA`)"),
        ((b"sha", UNKNOWN, UNKNOWN), CANNOT, "to allow EVALSHA EVAL"),
        ((UNKNOWN, UNKNOWN, ReplyError("NOSCRIPT No")), CANNOT, "to allow EVAL"),
        ((b"sha", [NO_GET], []), CANNOT, "(GET: ERR Unknown Redis command"),
        ((b"sha", [b"strange"], []), CANNOT, "(strange)"),
        ((b"sha", [], ReplyError("scripts are off")), CANNOT, "(EVALSHA: scripts are"),
        ((b"sha", None, b"OK"), CANNOT, "(EVALSHA: unexpected reply of type bytes)"),
        ((b"sha", [], [7]), CANNOT, "(EVALSHA: unexpected reply of type list)"),
        ((b"sha", [], 0), CANNOT, "(EVALSHA: unexpected reply of type int)"),
    ],
)  # fmt: skip
def test_user_or_server_that_cannot_release_is_refused_and_the_right_or_command_named(
    replies: tuple[object, ...], begins: str, named: str
) -> None:
    handshake, _ = asked(replies=replies)
    assert not handshake.is_done
    failure = handshake.failure or ""
    assert failure.startswith(begins)
    assert failure.endswith(named) if begins == ITS_USER else named in failure
    assert handshake.warnings() == [handshake.failure]


@pytest.mark.parametrize(
    ("reply", "is_done"),
    [
        (0, True),
        (NO_KEY, True),
        (ReplyError("READONLY You can't write"), True),
        (NOPERM, False),
        (ReplyError("ERR unknown command `DELEX`"), False),
    ],
)
@pytest.mark.parametrize("form", [1, 2])
def test_server_without_scripts_and_with_a_native_release_votes_where_that_works(
    form: int, reply: object, is_done: bool
) -> None:
    scripts = Scripts({"probe": PROBE}, releases_natively=True)
    handshake = Handshake(None, None, 0, b"fastredlock", scripts)
    introduced(handshake)
    known = [[b"delifeq"], None] if form == 1 else [None, [b"delex"]]
    for each in (b"OK", RUN_ID, known, UNKNOWN):
        assert handshake.on_reply(each) == b""
    (sent,) = commands_in(handshake.on_reply(UNKNOWN))
    assert sent[:2] == [(b"DELIFEQ", b"DELEX")[form - 1], b"fastredlock:probe"]
    assert handshake.on_reply(reply) == b""
    assert (handshake.is_done, handshake.is_native_alone) == (is_done, is_done)
    (text,) = handshake.warnings()
    assert ("runs no scripts (" in text) is is_done


@pytest.mark.parametrize("role", ["slave", "replica", "active-replica"])
def test_server_that_must_not_vote_ends_the_handshake_with_the_reason(
    role: str,
) -> None:
    handshake, _ = asked(replies=(b"sha", [], []), info=f"role:{role}".encode())
    assert "replica" in (handshake.failure or "")
    assert handshake.warnings() == [handshake.failure]


def test_marker_is_asked_for_last_with_the_run_id_and_a_second_more_than_max_ttl() -> (
    None
):
    handshake, sent = asked(max_ttl_ns=10**10 + 1, replies=(b"sha", [], []))
    keys = [b"fastredlock:voter", b"fastredlock:quarantine"]
    assert sent == [[b"EVAL", b"marker", b"2", *keys, b"abc", b"11001", b"exact"]]
    assert not handshake.is_done
    assert handshake.on_reply([-2, b"abc"]) == b""
    assert handshake.is_done
    assert handshake.mark is not None
    assert (handshake.mark.left_ms, handshake.mark.error) == (-1, None)
    assert handshake.warnings() == []


@pytest.mark.parametrize(
    ("reply", "is_forbidden"),
    [
        (NO_KEY, True),
        (ReplyError("ERR The user executing the script can't run this command"), True),
        (ReplyError("READONLY You can't write against a read only replica."), False),
        (ReplyError("OOM command not allowed"), False),
        ([b"5", b"abc"], False),
        ([5], False),
        ([5, None], False),
        (None, False),
        (7, False),
    ],
)
def test_marker_that_cannot_be_kept_is_told_and_ends_nothing(
    reply: object, is_forbidden: bool
) -> None:
    handshake, _ = asked(max_ttl_ns=10**9, replies=(b"sha", [], []))
    handshake.on_reply(reply)
    assert handshake.is_done
    assert handshake.mark is not None
    assert handshake.mark.is_forbidden is is_forbidden
    (text,) = handshake.warnings()
    assert text.startswith("cannot keep the marker fastredlock:voter (")
    assert ("grant ~fastredlock:*" in text) is is_forbidden


@pytest.mark.parametrize("text", ["MOVED 1 h:1", "ASK 1 h:1", "TRYAGAIN later"])
def test_marker_whose_slot_is_moved_is_no_warning(text: str) -> None:
    """Seen: the warning named an address, and rights that its user had."""
    handshake, _ = asked(max_ttl_ns=10**9, replies=(b"sha", [], []))
    handshake.on_reply(ReplyError(text))
    assert (handshake.is_done, handshake.warnings()) == (True, [])


def test_cluster_that_is_down_ends_the_handshake_and_is_no_missing_right() -> None:
    """Seen: `this server, or a proxy before it, has to allow GET DEL`, for ever."""
    down = [b"GET: ERR Script attempted to execute a command while the cluster is down"]
    handshake, _ = asked(max_ttl_ns=10**9, replies=(b"sha", down, down))
    handshake.on_reply(ReplyError("CLUSTERDOWN The cluster is down"))
    assert handshake.failure == "marker: CLUSTERDOWN The cluster is down"
    assert handshake.warnings() == []


# --- what INFO says of a server, without a server: text in, values out


def clock_reply(ns: int) -> list[bytes]:
    return [b"%d" % (ns // S), b"%d" % (ns % S // 1000)]


@pytest.mark.parametrize("drift", [0, 1])  # of a two-hundredth
def test_clock_when_it_drifts_by_less_than_a_hundredth_then_sees_no_jump(
    drift: int,
) -> None:
    clock = ServerClock()
    for at_ns in range(1_000 * S, 2_000 * S, 5 * S):
        said_ns = at_ns + 7 * S + drift * at_ns // 200
        assert not clock.on_time(clock_reply(said_ns), at_ns, at_ns + MS)
    assert clock.step_ns == 0


@pytest.mark.parametrize("step_ns", [3 * S, -3 * S, 200 * MS])
def test_clock_when_it_jumps_then_tells_the_step_once(step_ns: int) -> None:
    clock = ServerClock()
    clock.on_time(clock_reply(1_000 * S), 1_000 * S, 1_000 * S)
    assert not clock.on_time(clock_reply(1_009 * S), 1_004 * S, 1_005 * S)  # it is old
    assert clock.step_ns == 0
    assert clock.on_time(clock_reply(1_005 * S + step_ns), 1_005 * S, 1_005 * S)
    assert clock.step_ns == step_ns
    assert not clock.on_time(clock_reply(1_010 * S + step_ns), 1_010 * S, 1_010 * S)
