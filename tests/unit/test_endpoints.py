"""Services of Sentinel as options, and what a handshake learns of a failover."""

from itertools import chain
from typing import Any

import pytest
import redis.asyncio
from hiredis import ReplyError
from redis.sentinel import Sentinel, SentinelConnectionPool

from fastredlock import ConfigurationError, FastRedlock, Vote
from fastredlock._core import Engine, Handshake, Operation, Scripts
from fastredlock._endpoints.sentinel import Sentinels
from fastredlock._options.masters import Endpoint, parse_masters
from fastredlock._options.settings import masters_in
from tests.support.by_hand import (
    NO_NATIVE,
    SCRIPTS,
    START_NS,
    S,
    begin,
    bulk,
    connected,
    handshake_replies,
    info,
    lost,
    make_ready,
    mark,
    open_due,
    outgoing,
    receive,
    said_of,
    sent,
)

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


def test_list_of_urls_when_a_service_is_among_them_then_has_all_its_sentinels() -> None:
    service = "redis+sentinel://s1,s2/m"
    assert masters_in(f"redis://a, {service},b:1") == ("redis://a", service, "b:1")


@pytest.mark.parametrize(
    ("query", "window_ns"),
    [("", 0), ("?failover_window=1.5", 1_500_000_000), ("?failover_window=0", 1)],
)
def test_window_when_of_a_plain_master_then_is_what_is_given(
    query: str, window_ns: int
) -> None:
    assert endpoint_of(f"redis://h{query}").failover_ns == window_ns


# --- what a handshake learns of a failover --------------------------------------------

NO_CONFIG = ReplyError("NOPERM no permissions to run 'config|get'")
OK_CONFIG = {b"min-replicas-to-write": b"2", b"min-replicas-max-lag": b"3"}


def handshaken(config: object, replicas: int = 2, failover_ns: int = -1) -> Handshake:
    """Go through a handshake with a server that has so many replicas."""
    scripts = Scripts({}, releases_natively=False)
    handshake = Handshake(None, None, 0, b"name", scripts, S, failover_ns)
    handshake.start()
    asked = handshake.on_reply({b"proto": 3})
    assert (b"min-replicas-*" in asked) is (failover_ns < 0)
    told = f"run_id:a\r\nuptime_in_seconds:99\r\nconnected_slaves:{replicas}\r\n"
    for reply in (b"OK", told.encode(), [None, None]):
        handshake.on_reply(reply)
    if failover_ns < 0:
        handshake.on_reply(config)
    return handshake


@pytest.mark.parametrize(
    ("config", "replicas", "seconds", "warning"),
    [
        (OK_CONFIG, 2, 5, None),
        ([*chain(*OK_CONFIG.items())], 2, 5, None),  # of RESP2
        (OK_CONFIG, 3, 5, "has 3 replicas and min-replicas-to-write 2"),
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


def test_window_when_given_then_the_server_is_not_asked() -> None:
    assert handshaken(None, failover_ns=7 * S).failover_ns == 7 * S


# --- the restart guard of an endpoint -------------------------------------------------


def test_sentinels_when_they_answer_then_are_asked_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: one that was cut off with an old primary was the only one asked."""
    asked = []

    def answer(_: Sentinels, address: tuple[str, int]) -> tuple[str, int] | str:
        asked.append(address[0])
        return "is down" if address[0] == "s2" else ("primary", 6379)

    monkeypatch.setattr(Sentinels, "_asked", answer)
    sentinels = Sentinels("m", (("s1", 1), ("s2", 2), ("s3", 3)), {})
    for _ in range(4):
        assert sentinels.find_primary() == ("primary", 6379)
    assert asked == ["s1", "s2", "s3", "s1", "s3"]  # s2 behind both that answered


def test_sentinels_when_an_option_cannot_be_used_then_its_value_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("'s3cret' cannot be encoded")

    monkeypatch.setattr(Sentinel, "discover_master", fail)
    said = Sentinels("m", (("s1", 1),), {"password": "s3cret"}).find_primary()
    assert said == "no primary of 'm': s1:1 could not be asked: ValueError"


def endpoint_engine(**options: Any) -> Engine:
    return Engine(
        [Endpoint("127.0.0.1", 7001, **options)], SCRIPTS, S, (), 10 * S, jitter_seed=1
    )


LONG = {"run_id": "a", "uptime_in_seconds": 10**6}
OTHER, REFUSED = LONG | {"run_id": "b"}, b"-NOREPLICAS Not enough good replicas.\r\n"


@pytest.mark.parametrize(
    ("before", "after", "marked", "said"),
    [
        (LONG, OTHER, mark(), "restarted or replaced: its run id is new, votes in 0."),
        # Its run id is the one before; what it lost as a replica of the other is gone.
        (LONG, LONG | {"master_replid": "y"}, mark(), ""),
        # A known one that cannot write may have been a replica in between.
        (LONG, LONG, REFUSED, ""),
    ],
)
def test_guard_when_an_endpoint_may_have_another_server_then_it_waits_for_the_window(
    before: dict[str, object], after: dict[str, object], marked: bytes, said: str
) -> None:
    told = info(**{"master_replid": "x", **before})
    engine = make_ready(endpoint_engine(failover_ns=3 * S), [told])
    assert said_of(begin(engine, START_NS))[0] is Vote.PENDING
    lost(engine, 0, "cut", START_NS)
    told = info(**{"master_replid": "x", **after})
    make_ready(engine, [told], START_NS + S, marked)
    vote, text = said_of(begin(engine, START_NS + 15 * S - 1))
    assert (vote, str(text)[: len(said)]) == (Vote.FAILED, said)
    assert said_of(begin(engine, START_NS + 15 * S))[0] is Vote.PENDING


@pytest.mark.parametrize(
    ("failover_ns", "marker"),
    [
        (0, [b"fastredlock:voter", b"fastredlock:quarantine", b"a"]),
        (3 * S, [b"fastredlock:primary", b"fastredlock:quarantine", b"a:x"]),
    ],
)
def test_marker_when_an_endpoint_keeps_it_then_is_not_that_of_a_plain_master(
    failover_ns: int, marker: list[bytes]
) -> None:
    """Each would find another one's name in it, and nobody could vote."""
    engine = endpoint_engine(failover_ns=failover_ns)
    open_due(engine, True, START_NS)
    connected(engine, 0, START_NS)
    outgoing(engine, 0)
    told = info(**LONG, master_replid="x")
    receive(engine, 0, handshake_replies(told), START_NS)
    assert sent(engine, 0)[-1][3:6] == marker


def test_guard_when_an_endpoint_keeps_its_writes_then_it_votes_at_once() -> None:
    old, new = (info(run_id=name, uptime_in_seconds=1) for name in "ab")
    engine = make_ready(endpoint_engine(lossless_failover=True), [old])
    lost(engine, 0, "cut", START_NS)
    make_ready(engine, [new], START_NS + S)
    assert said_of(begin(engine, START_NS + S))[0] is Vote.PENDING


def test_guard_when_the_windows_of_two_servers_differ_then_the_longer_one_counts() -> (
    None
):
    old, new = (info(run_id=each, uptime_in_seconds=10**6) for each in "ab")
    engine = endpoint_engine(failover_ns=-1)
    for server, lag, now_ns in ((old, 5, START_NS), (new, 1, START_NS + S)):
        open_due(engine, True, now_ns)
        connected(engine, 0, now_ns)
        outgoing(engine, 0)
        told = b"%2\r\n" + b"".join(
            bulk(each) for each in (b"min-replicas-to-write", b"1",
                                    b"min-replicas-max-lag", b"%d" % lag)
        )  # fmt: skip
        config = NO_NATIVE + told
        receive(engine, 0, handshake_replies(server, config), now_ns)
        outgoing(engine, 0)
        receive(engine, 0, mark(), now_ns)
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
