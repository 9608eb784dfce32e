"""Services of Sentinel as options, and what a handshake learns of a failover."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import pytest
import redis.asyncio
from hiredis import ReplyError
from redis.sentinel import Sentinel, SentinelConnectionPool

from fastredlock import ConfigurationError, FastRedlock, Vote
from fastredlock._core import (
    Engine,
    MasterState,
    Operation,
    Scripts,
    ServerInfo,
    failover_of,
)
from fastredlock._endpoints.sentinel import Answer, Sentinels
from fastredlock._options import scripts
from fastredlock._options.masters import Endpoint, parse_masters
from fastredlock.testing._model import Model
from tests.support.by_hand import (
    MS,
    SCRIPTS,
    START_NS,
    TIME_REPLY,
    Reply,
    S,
    begin,
    bulk,
    by_hand,
    info,
    lost,
    make_ready,
    mark,
    open_due,
    outgoing,
    receive,
    said_of,
    sent,
    settings_told,
    shake_hands,
)
from tests.support.core import Handshake

LOADED = 0.6  # s; a machine that is
PLACES = (("s1", 26379), ("s2", 26380))
URL = "redis+sentinel://u:p@s1,s2:26380/mymaster/2"


def endpoint_of(master: Any) -> Endpoint:
    return parse_masters([master])[0]


@pytest.mark.parametrize(
    "master",
    [
        URL,
        {
            "sentinels": PLACES,
            "service_name": "mymaster",
            "db": 2,
            "username": "u",
            "password": "p",
        },
        Sentinel(PLACES, db=2, username="u", password="p").master_for("mymaster"),
        redis.asyncio.Sentinel(PLACES, db=2, username="u", password="p").master_for(
            "mymaster"
        ),
        redis.Redis(
            connection_pool=SentinelConnectionPool(
                *("mymaster", Sentinel(PLACES)),
                **{"host": "mymaster", "db": 2, "username": "u", "password": "p"},
            )
        ),
    ],
    ids=["URL", "dict", "client", "awaitable client", "client of django-redis"],
)
def test_service_when_given_in_any_form_then_is_the_same_endpoint(master: Any) -> None:
    endpoint = endpoint_of(master)
    assert endpoint.sentinels is not None
    assert endpoint.sentinels.addresses == PLACES
    assert (endpoint.name, endpoint.username) == ("sentinel:s1:26379/mymaster/2", "u")
    assert (endpoint.password, endpoint.failover_ns) == ("p", -1)
    assert endpoint.needs_answer


def test_logins_when_of_sentinels_then_are_not_those_of_the_servers() -> None:
    url = f"{URL}?sentinel_password=secret&sentinel_ssl=yes"
    url += "&sentinel_ssl_check_hostname=no&ssl_cert_reqs=none"
    with pytest.raises(ConfigurationError, match="ssl_cert_reqs needs TLS"):
        endpoint_of(url)
    sentinels = endpoint_of(url.partition("&ssl_cert")[0]).sentinels
    assert sentinels is not None
    assert sentinels._options["password"] == "secret"
    assert sentinels._options["ssl"] is True
    assert sentinels._options["ssl_check_hostname"] is False
    assert "secret" not in repr(sentinels)


def named(**settings: Any) -> dict[str, Any]:
    return {"service_name": "mymaster", **settings}


@pytest.mark.parametrize(
    ("master", "text"),
    [
        ("redis+sentinel://s1:26379", "without the name of its service"),
        ("redis+sentinel://s1:x/name", "port"),
        (
            f"{URL}?failover_window=soon",
            "failover_window='soon': no number; allowed is 0 to",
        ),
        (f"{URL}?lossless_failover=perhaps", "lossless_failover"),
        (f"{URL}?sentinel_ssl=perhaps", "allowed are true"),
        ({"sentinels": PLACES}, "sentinels and service_name: give both"),
        (named(sentinels="s1:26379"), "sentinels must be a list"),
        (named(sentinels=[("s1", 1, 2)]), "sentinels must be a list"),
        (named(sentinels=[("s1", 1)] * 2), "each once, are allowed"),
        (
            named(sentinels=PLACES, sentinel_kwargs="x"),
            "sentinel_kwargs must be a dict",
        ),
        (named(sentinels=PLACES, sentinel_kwargs={"x": 1}), "sentinels: TypeError"),
        (named(sentinels=PLACES, host="h"), "nor have a host, port or socket"),
        ("redis+sentinel://s1,,s2/name", "empty host"),
        ("redis://h?sentinel_password=x", "sentinel_password without sentinels"),
        (f"{URL}?sentinel_ssl_ca_certs=/x", "of the sentinels: ssl_ca_certs needs TLS"),
        ("redis+sentinel:///name", "empty host"),
        (Sentinel(PLACES).slave_for("mymaster"), "takes no locks"),
    ],
)
def test_service_when_badly_given_then_is_refused(master: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        endpoint_of(master)


def test_service_when_there_is_no_max_ttl_then_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match="mymaster/2 needs max_ttl"):
        FastRedlock([URL])
    lossless = f"{URL}?lossless_failover=true"
    FastRedlock([lossless])
    assert endpoint_of(lossless).failover_ns == 0  # nothing is asked, nor warned of
    FastRedlock([URL], max_ttl=10)


def test_services_of_one_name_when_their_sentinels_differ_then_are_two_masters() -> (
    None
):
    one, other = "redis+sentinel://s1,s2/m", "redis+sentinel://s3,s4/m"
    assert len({each.name for each in parse_masters([one, other])}) == 2
    with pytest.raises(ConfigurationError, match="are the same server"):
        parse_masters([one, "redis+sentinel://s2,s1/m"])


@pytest.mark.parametrize(
    ("query", "window_ns"),
    [("", 0), ("?failover_window=1.5", 1_500_000_000), ("?failover_window=0", 1)],
)
def test_window_when_of_a_plain_master_then_is_what_is_given(
    query: str, window_ns: int
) -> None:
    assert endpoint_of(f"redis://h{query}").failover_ns == window_ns
    if query:
        assert endpoint_of(f"redis://h{query}&replicas=1").replicas == 1


# --- what a handshake learns of a failover --------------------------------------------

NO_CONFIG = ReplyError("NOPERM no permissions to run 'config|get'")
OK_CONFIG = {b"min-replicas-to-write": b"2", b"min-replicas-max-lag": b"3"}


def handshaken(
    config: object, replicas: int = 2, failover_ns: int = -1, known: int = 0
) -> Handshake:
    """Go through a handshake with a server that has so many replicas."""
    none = Scripts({}, releases_natively=False)
    handshake = Handshake(None, None, 0, b"name", none, S, failover_ns, known)
    handshake.start()
    asked = handshake.on_reply({b"proto": 3})
    assert b"min-replicas-*" in asked
    told = f"run_id:a\r\nuptime_in_seconds:99\r\nconnected_slaves:{replicas}\r\n"
    for reply in (b"OK", told.encode(), [None, None]):
        handshake.on_reply(reply)
    handshake.on_reply(config)
    return handshake


@pytest.mark.parametrize(
    ("config", "replicas", "seconds", "warning"),
    [
        (OK_CONFIG, 2, 5, None),
        ([*chain(*OK_CONFIG.items())], 2, 5, None),  # of RESP2
        (OK_CONFIG, 3, 8, None),  # all but one: a replica may have just gone
        (OK_CONFIG, 4, 5, "has 4 replicas and min-replicas-to-write 2"),
        ({**OK_CONFIG, b"min-replicas-to-write": b"1"}, 1, 5, None),
        ({**OK_CONFIG, b"min-replicas-to-write": b"0"}, 1, 5, "set it to 1"),
        ({**OK_CONFIG, b"min-replicas-to-write": b"0"}, 0, 5, "goes on granting"),
        ({**OK_CONFIG, b"min-replicas-max-lag": b"0"}, 2, 12, "goes on granting"),
        (NO_CONFIG, 2, 12, "does not tell min-replicas-to-write"),
        ({}, 2, 12, "does not tell min-replicas-to-write"),
        (b"OK", 2, 12, "does not tell min-replicas-to-write"),
        ([[], b"x", 1], 2, 12, "does not tell min-replicas-to-write"),
        ({b"min-replicas-max-lag": 3}, 2, 12, "does not tell min-replicas-to-write"),
        ({b"min-replicas-max-lag": b"9" * 99}, 2, 12, "does not tell min-replicas"),
    ],
)
def test_window_when_the_server_is_asked_then_is_its_lag_and_what_is_lost_is_told(
    config: object, replicas: int, seconds: int, warning: str | None
) -> None:
    handshake = handshaken(config, replicas)
    assert handshake.failover_ns == seconds * S
    warnings = "; ".join(handshake.warnings())
    assert (warning or "") in warnings
    assert bool(warnings) is (warning is not None)


@pytest.mark.parametrize(
    ("enough", "connected", "known", "needed", "warning"),
    [
        (b"2", 3, 0, 2, None),
        (b"2", 2, 0, 2, None),  # the third may be away now
        (b"1", 3, 0, 1, "set it to 2"),
        (b"0", 3, 0, 0, None),  # who gave the window answers for it
        (b"2", 2, 3, 2, None),
        (b"3", 3, 3, 2, None),
        (b"1", 0, 1, 0, None),  # of one replica none can be at two primaries
    ],
)
def test_window_when_given_then_is_not_that_of_the_settings(
    enough: bytes, connected: int, known: int, needed: int, warning: str | None
) -> None:
    config = {b"min-replicas-to-write": enough, b"min-replicas-max-lag": b"9"}
    handshake = handshaken(config, connected, 7 * S, known)
    assert handshake.failover_ns == 7 * S
    assert handshake.server_info.needed == needed
    assert (warning or "") in "; ".join(handshake.warnings())
    assert bool(handshake.warnings()) is (warning is not None)


# --- whether a server is still the primary that it was --------------------------------

ZEROS = "0" * 40
LAGS = {b"min-replicas-to-write": b"1", b"min-replicas-max-lag": b"3"}


def server(
    run_id: str = "a",
    come: int = 5,
    promotion: str = "",
    lags: tuple[int, ...] = (1,),
    syncing: str = "",
    config: object = LAGS,
    replid: str = "",
) -> ServerInfo:
    """Return what a server tells that has two replicas, one of which may be away.

    `syncing`: the state of one that is sent all data. `replid`: its repl-backlog-ttl
    is short, so that promotions are forgotten.
    """
    told = f"min_slaves_good_slaves:{len(lags)}\r\nmaster_replid:{replid}\r\n"
    told += f"run_id:{run_id}\r\nmaster_replid2:{promotion or ZEROS}\r\n"
    told += f"second_repl_offset:{7 if promotion else -1}\r\n"
    told += f"sync_full:{come - 1}\r\nsync_partial_ok:1\r\n"
    for i, lag in enumerate(lags):
        told += f"slave{i}:ip=h,port=1,state=online,offset=3,lag={lag}\r\n"
    if syncing:
        told += f"slave{len(lags)}:ip=h,port=1,state={syncing},offset=0,lag=0\r\n"
    told += f"connected_slaves:{len(lags)}\r\n"
    found = ServerInfo(told.encode())
    assert failover_of(config, found, 2)[0] == (8 if config is LAGS else 12) * S
    found.keeps_promotion = not replid
    return found


SHORT = partial(server, replid="x")  # its repl-backlog-ttl
SILENT = partial(server, config=NO_CONFIG)


@pytest.mark.parametrize(
    ("before", "now", "goes_on"),
    [
        (server(), server(), True),
        (server(), server("b"), False),
        (server(), server(promotion="p"), False),
        (server(promotion="p"), server(promotion="p"), True),
        (server(promotion="p"), server(promotion="q"), False),
        (server(promotion="p"), server(), True),  # its mark was cleared meanwhile
        (server(), server(come=6), False),  # perhaps from another primary
        (server(), server(come=6, lags=(1, 0)), True),  # the other one has stayed
        (server(), server(come=7, lags=(1, 0)), False),
        (server(), server(come=6, syncing="send_bulk"), True),  # not there yet
        (server(), server(come=6, lags=(), syncing="wait_bgsave"), False),
        (server(come=6, syncing="send_bulk"), server(come=6, lags=(1, 0)), True),
        (server(come=6, syncing="send_bulk"), server(come=6), False),  # in its place
        (server(), server(come=6, syncing="send_bulk,type=rdb-channel"), False),
        (server(), server(lags=(4,)), False),  # it was frozen: nobody is near
        (server(), server(come=6, lags=(1, 4)), False),
        (server(), server(lags=()), False),
        (server(come=6), server(), False),  # CONFIG RESETSTAT: none is known
        (SHORT(), SHORT(), True),
        (SHORT(), SHORT(replid="y"), False),
        (SHORT(), SHORT(come=6), False),
        (SHORT(), SHORT(come=6, lags=(1, 0)), True),
        (SILENT(), SILENT(), True),
        (SILENT(), SILENT(lags=(1, 0)), True),
        (SILENT(), SILENT(come=6, lags=(1, 0)), False),  # one may have to stay, or two
        (SILENT(), SILENT(lags=()), False),
        (SILENT(), SILENT(lags=(11,)), False),
    ],
)
def test_primary_when_it_may_have_been_replaced_then_does_not_go_on(
    before: ServerInfo, now: ServerInfo, goes_on: bool
) -> None:
    text, old = now.identity(True), before.identity(True)
    assert text is not None
    assert old is not None
    assert now.goes_on(old) is goes_on
    there = sum(int(each["lag"]) <= now.lag_s for each in replicas_of(now))
    spare = there - now.needed if now.needed > 0 else -(there == 0)
    model = Model()
    marker = [b"EVAL", scripts.MARKER, b"2", b"m", b"q"]
    model.execute([b"SET", b"m", old.encode(), b"NX"], None, 1)
    arguments = [text.encode(), b"1000", b"%d" % max(spare, -1)]
    reply = model.execute(marker + arguments, None, 1)
    assert reply.startswith(b"*2\r\n:%d\r\n" % (-2 if goes_on else 1000))


def test_primary_when_its_first_replica_is_sent_all_data_then_none_has_come() -> None:
    """Seen: a crash. Without `needed` only `INFO replication` is asked: no counts."""
    told = b"run_id:a\r\nslave0:ip=h,port=1,state=wait_bgsave,offset=0,lag=0\r\n"
    assert ServerInfo(told).identity(True) == "a:-1:"


def replicas_of(info: ServerInfo) -> list[dict[str, str]]:
    lines = [text for text in info.fields.values() if "state=online" in text]
    return [dict(part.split("=") for part in line.split(",")) for line in lines]


def told_by_primary(come: int) -> bytes:
    replica = "ip=h,port=1,state=online,offset=3,lag=0"
    return info(
        run_id="a", role="master", uptime_in_seconds=10**6, sync_full=come,
        connected_slaves=2, slave0=replica, slave1=replica, master_replid2=ZEROS,
    )  # fmt: skip


def settings_of(lags: dict[bytes, bytes]) -> dict[str, Reply]:
    """Answer CONFIG GET: so many replicas have to follow, with this lag."""
    told = b"%2\r\n" + b"".join(bulk(each) for pair in lags.items() for each in pair)
    return {
        "CONFIG": lambda words: settings_told(words) if b"log" in words[2] else told
    }


@pytest.mark.parametrize(
    ("come", "state", "marked"),
    [
        (5, MasterState.READY, []),
        (6, MasterState.READY, [b"a:6:"]),  # for clients without a memory
        (7, MasterState.BACKOFF, []),
    ],
)
def test_primary_when_it_is_busy_then_is_asked_for_its_replicas_in_each_half_second(
    come: int, state: MasterState, marked: list[bytes]
) -> None:
    engine = endpoint_engine(failover_ns=3 * S)
    open_due(engine, True, START_NS)
    told = told_by_primary(5)
    shake_hands(engine, 0, START_NS, told, mark(), settings_of(LAGS))
    begin(engine, START_NS)
    outgoing(engine, 0)
    receive(engine, 0, told + b"+OK\r\n" + TIME_REPLY, START_NS)
    asked, markers = [], []
    for at_ns in range(START_NS + 5 * MS, START_NS + S, 5 * MS):  # never silent
        begin(engine, at_ns)
        for words in sent(engine, 0):
            if words == [b"INFO"]:
                asked.append(at_ns)
                reply = told_by_primary(come)
            else:
                reply = b"+OK\r\n"
            if engine.states[0][0] is MasterState.READY:
                receive(engine, 0, reply, at_ns)
        for words in sent(engine, 0):
            markers.append(words[5])
            receive(engine, 0, mark(), at_ns)
    assert engine.states[0][0] is state
    assert asked == [START_NS + 505 * MS]
    assert markers == marked


# --- the restart guard of an endpoint -------------------------------------------------


def test_sentinels_when_they_answer_then_are_asked_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: one that was cut off with an old primary was the only one asked."""
    asked = answering(monkeypatch, [{"s1": A, "s3": A}])
    sentinels = Sentinels("m", (("s1", 1), ("s2", 2), ("s3", 3)), {})
    for _ in range(4):
        assert sentinels.find_primary() == ("a", 6379)
    # The first time two have to agree; s2 is behind both that answered.
    assert asked == ["s1", "s2", "s3", "s3", "s1", "s2", "s3"]


def told(
    primary: str, servers: str, sentinels: str, error: Exception | None = None
) -> Callable[[Any], Answer]:
    """Return an answer of a sentinel; each letter is a run id."""
    found: Any = f"says: {primary}" if primary == "down" else (primary, 6379)
    ids = set(servers), set(sentinels)
    return lambda place: Answer(place, found, 1, *ids, error)


A, B = told("a", "pr", "xyz"), told("b", "q", "uvw")
DOWN, FAILED_OVER = told("down", "", "xyz"), told("a2", "r", "xyz")
RESTARTED, MOVED_HERE = told("a2", "n", "xyz"), told("b", "q", "x")
RENEWED = told("a2", "pn", "mno")  # all sentinels
UNTOLD = told("a2", "", "", RuntimeError("NOPERM"))
ROW = dict.fromkeys


def answering(
    monkeypatch: pytest.MonkeyPatch,
    turns: list[dict[str, Callable[[Any], Answer]]],
) -> list[str]:
    """Let these sentinels answer, the others not; list who was asked.

    Of `turns` the first counts, and is removed by the caller.
    """
    asked = []

    def answer(_: Sentinels, place: tuple[str, int], limit: object) -> Answer | str:
        asked.append(place[0])
        found = turns[0].get(place[0])
        return "is away" if found is None else found(place)

    monkeypatch.setattr(Sentinels, "_asked", answer)
    return asked


STRANGE = "is of another service of this name"


@pytest.mark.parametrize(
    ("turns", "primaries"),
    [
        # A client that knows its service: an address is of another one by now.
        ([ROW("123", A), {"1": A, "2": B, "3": A}] * 3, "a a a a a a"),
        ([ROW("123", A), {"2": B, "3": B}], ["a", STRANGE]),
        ([ROW("123", A), {"2": MOVED_HERE}], ["a", STRANGE]),
        ([ROW("123", A), {"1": DOWN, "2": B}], ["a", "says: down"]),
        # What changes in the life of a service.
        ([ROW("123", A), {"2": FAILED_OVER}, {"3": FAILED_OVER}], "a a2 a2"),
        ([ROW("123", A), {"2": RESTARTED}], "a a2"),
        ([ROW("123", A), {"2": RENEWED}], "a a2"),
        ([ROW("123", A), {"2": UNTOLD}], "a a2"),
        # It was built anew, after 61 s without a word of the old one.
        ([ROW("123", A), ROW("12", B), {}, ROW("12", B)], ["a", STRANGE, "", "b"]),
        ([ROW("123", A), {"1": B}, {}, {"1": B}], ["a", STRANGE, "", STRANGE]),
        ([ROW("123", A), ROW("12", B), {"3": A}, ROW("12", B)], ["a", STRANGE] * 2),
        # A client that starts.
        ([{"1": B, "2": A, "3": A}], "a"),
        ([{"1": A}], "a"),
        ([{"1": A, "2": B}], [STRANGE]),
        ([{"1": DOWN, "2": B, "3": DOWN}], ["says: down"]),
        ([{"1": B, "2": DOWN, "3": A}], "a"),
    ],
)  # fmt: skip
def test_sentinels_when_one_is_of_another_service_then_its_primary_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
    turns: list[dict[str, Callable[[Any], Answer]]],
    primaries: str | list[str],
) -> None:
    """Seen: a client waited for a quarantine and locked there, beside the others."""
    now_ns = START_NS
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    left = list(turns)
    answering(monkeypatch, left)
    sentinels = Sentinels("m", (("1", 1), ("2", 2), ("3", 3)), {})
    for expected in primaries.split() if isinstance(primaries, str) else primaries:
        found = sentinels.find_primary()
        assert expected in (found if isinstance(found, str) else found[0])
        assert isinstance(found, str) is (len(expected) > 2 or not expected)
        left.pop(0)
        now_ns += 40 * S


def test_sentinels_when_one_is_of_another_service_then_a_warning_names_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = [{"1": A, "2": B, "3": A}, {"1": A}, {"2": A}, {"3": UNTOLD}]
    answering(monkeypatch, turns)
    sentinels = Sentinels("m", (("1", 1), ("2", 2), ("3", 3)), {})
    foreign = f"the sentinel at 2:2 {STRANGE}"
    for text in (foreign, foreign, "None", "(NOPERM): whether an address"):
        sentinels.find_primary()
        assert text in str(sentinels.warning)
        turns.pop(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pieces", "between"),
    [
        ([b"*"] + [b"0"] * 99, 0.02),  # never a whole line
        ([b"+" + b"x" * 65536] * 99, 0.0),
        ([b"*1000000000\r\n"], 0.0),  # hiredis would make the list: 4 s, all threads
        ([b"$1000000000\r\n"] + [b"x" * 65536] * 99, 0.0),
        ([], 0.0),
    ],
    ids=["by drops", "endless line", "giant list", "giant text", "silent"],
)
def test_sentinel_when_its_reply_has_no_end_then_is_given_up_within_its_timeout(
    pieces: list[bytes], between: float
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        is_over = threading.Event()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(4096)
                for piece in pieces:
                    connection.sendall(piece)
                    is_over.wait(between)
                is_over.wait(10)

        thread = threading.Thread(target=answer)
        thread.start()
        place = listening.getsockname()
        began = time.monotonic()
        found = Sentinels("m", (place,), {"socket_timeout": 0.3}).find_primary()
        took = time.monotonic() - began
        is_over.set()
        thread.join()
    assert isinstance(found, str)
    assert "did not answer" in found
    assert took < 0.3 + LOADED


def test_sentinels_when_an_option_cannot_be_used_then_its_value_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("'s3cret' cannot be encoded")

    monkeypatch.setattr(redis.Redis, "sentinel_masters", fail)
    said = Sentinels("m", (("s1", 1),), {"password": "s3cret"}).find_primary()
    assert said == "no primary of 'm': s1:1 could not be asked: ValueError"


def endpoint_engine(**options: Any) -> Engine:
    engine = Engine(
        [Endpoint("127.0.0.1", 7001, **options)], SCRIPTS, S, (), 10 * S, jitter_seed=1
    )
    by_hand(engine)
    return engine


LONG = {"run_id": "a", "uptime_in_seconds": 10**6}
PROMOTED = {"master_replid2": "f" * 40, "second_repl_offset": 7}
OTHER = LONG | {"run_id": "b"}


WINDOW = {"failover_ns": 3 * S}
YOUNG = {"run_id": "a", "uptime_in_seconds": 1}


@pytest.mark.parametrize(
    ("options", "before", "after", "seconds", "said"),
    [
        (WINDOW, LONG, OTHER, 14, "restarted or replaced: its run id is new, votes"),
        # Its run id is the one before; what it lost as a replica of the other is gone.
        (WINDOW, LONG, LONG | PROMOTED, 14, "may have been replaced: its replicas, or"),
        (WINDOW, LONG | PROMOTED, LONG | PROMOTED | {"second_repl_offset": 9}, 14, ""),
        # Its first replica has come: Redis draws another replication id then.
        (WINDOW, LONG, LONG | {"master_replid": "y"}, 0, ""),
        ({"lossless_failover": True}, YOUNG, YOUNG | {"run_id": "b"}, 0, ""),
    ],
)
def test_guard_when_an_endpoint_may_have_another_server_then_it_waits_for_the_window(
    options: Any, before: Any, after: Any, seconds: int, said: str
) -> None:
    told = info(**{"master_replid": "x", **before})
    engine = make_ready(endpoint_engine(**options), [told])
    assert said_of(begin(engine, START_NS))[0] is Vote.PENDING
    lost(engine, 0, "cut", START_NS)
    told, votes_ns = info(**{"master_replid": "x", **after}), START_NS + S + seconds * S
    make_ready(engine, [told], START_NS + S)
    vote, text = said_of(begin(engine, votes_ns - 1))
    if seconds:
        assert (vote, str(text)[: len(said)]) == (Vote.FAILED, said)
    assert said_of(begin(engine, votes_ns))[0] is Vote.PENDING


@pytest.mark.parametrize(
    ("marked", "votes"),
    [(mark(), True), (mark(left_ms=9000), False), (b"-OOM full\r\n", False)],
)
def test_guard_when_replicas_came_while_it_was_idle_then_the_marker_has_their_count(
    marked: bytes, votes: bool
) -> None:
    """Others have counted each of them: two in a rolling restart cost no wait."""
    engine = endpoint_engine(failover_ns=3 * S)
    for come, left in ((5, mark()), (9, marked)):
        lost(engine, 0, "cut", START_NS)
        open_due(engine, True, START_NS)
        told = told_by_primary(come)
        shake_hands(engine, 0, START_NS, told, left, settings_of(LAGS))
    assert said_of(begin(engine, START_NS))[0] is (
        Vote.PENDING if votes else Vote.FAILED
    )


@pytest.mark.parametrize(
    ("failover_ns", "marker"),
    [
        (0, [b"fastredlock:voter", b"fastredlock:quarantine", b"a"]),
        (
            3 * S,
            [
                b"fastredlock:lineage",
                b"fastredlock:quarantine",
                b"a:0:",
            ],
        ),
    ],
)
def test_marker_when_an_endpoint_keeps_it_then_is_not_that_of_a_plain_master(
    failover_ns: int, marker: list[bytes]
) -> None:
    """Each would find another one's name in it, and nobody could vote."""
    engine = endpoint_engine(failover_ns=failover_ns)
    open_due(engine, True, START_NS)
    (asked,) = shake_hands(engine, 0, START_NS, info(**LONG, master_replid="x"))
    assert asked[3 : 3 + len(marker)] == marker


def test_endpoint_when_too_few_replicas_follow_then_that_is_why_it_has_no_vote() -> (
    None
):
    """Seen: a right was said to be missing, and a date named, again and again."""
    engine = endpoint_engine(failover_ns=3 * S)
    refused = b"-NOREPLICAS Not enough good replicas to write. script: 1, on @u:1.\r\n"
    make_ready(engine, [info(**LONG)], START_NS, refused)
    vote, text = said_of(begin(engine, START_NS))
    assert (vote, text) == (
        Vote.FAILED,
        "NOREPLICAS: too few replicas follow it, so it refuses all writes",
    )
    make_ready(engine, [info(**LONG)], START_NS + S)
    assert said_of(begin(engine, START_NS + S))[0] is Vote.PENDING


def test_guard_when_the_windows_of_two_servers_differ_then_the_longer_one_counts() -> (
    None
):
    there = {"slave0": "state=online,lag=0"}
    old, new = (info(run_id=each, uptime_in_seconds=10**6, **there) for each in "ab")
    engine = endpoint_engine(failover_ns=-1)
    for server, lag, now_ns in ((old, 5, START_NS), (new, 1, START_NS + S)):
        open_due(engine, True, now_ns)
        lags = LAGS | {b"min-replicas-max-lag": b"%d" % lag}
        shake_hands(engine, 0, now_ns, server, mark(), settings_of(lags))
        if server is old:
            lost(engine, 0, "cut", now_ns)
    assert said_of(begin(engine, START_NS + 19 * S - 1))[0] is Vote.FAILED
    assert said_of(begin(engine, START_NS + 19 * S))[0] is Vote.PENDING


@pytest.mark.parametrize(
    ("told", "marked"),
    [
        (info(run_id="a", uptime_in_seconds=10**6), b"-NOPERM No permissions\r\n"),
        (b"-NOPERM no INFO\r\n", mark()),
    ],
    ids=["marker", "INFO"],
)
def test_guard_when_a_right_is_missing_then_an_endpoint_waits_at_each_connect(
    told: bytes, marked: bytes
) -> None:
    engine = make_ready(endpoint_engine(failover_ns=3 * S), [told], START_NS, marked)
    assert said_of(begin(engine, START_NS + 14 * S - 1))[0] is Vote.FAILED
    assert said_of(begin(engine, START_NS + 14 * S))[0] is Vote.PENDING


@pytest.mark.parametrize(
    ("error", "failover_ns", "is_lost"),
    [
        ("READONLY You can't write against a read only replica.", 0, True),
        ("MASTERDOWN Link with MASTER is down", 0, True),
        ("ERR script: -READONLY You can't write", 0, True),
        ("NOREPLICAS Not enough good replicas to write.", 0, False),
        ("NOREPLICAS Not enough good replicas to write.", 1, True),
        ("OOM command not allowed", 1, False),
    ],
)
@pytest.mark.parametrize("operation", [Operation.ACQUIRE, Operation.RELEASE])
def test_connection_when_its_server_is_no_primary_any_more_then_ends(
    error: str, failover_ns: int, is_lost: bool, operation: Operation
) -> None:
    # After a switch by hand the old primary closes nothing (redis-py #435).
    server = info(run_id="a", uptime_in_seconds=10**6)
    engine = make_ready(endpoint_engine(failover_ns=failover_ns), [server])
    round = begin(engine, START_NS, operation)
    receive(engine, 0, f"-{error}\r\n".encode(), START_NS)
    assert error.partition(" ")[0] in str(said_of(round)[1])
    assert open_due(engine, True, START_NS) == []  # seen: 105 connections/s, for ever
    assert (open_due(engine, True, START_NS + S) == [0]) is is_lost
