"""A service of Redis Sentinel: which server is its primary, asked for each connection.

docs/endpoints-inside.md has the theory. A connection that is to be opened asks the
sentinels for the address, in the thread of its look-up (src_cython/master/lookup.pyx);
nothing else does. redis-py speaks to them; of its objects none is kept between two
questions. Its timeouts are of one recv(2) each, and hiredis makes a list as long as a
reply announces. So its sockets are bounded here, and its parser of Python reads them: a
sentinel that answers by drops, or without an end, is one that does not answer.

A name says little: an address may belong to a sentinel of another service of that name
by now. So a service is known by the run ids of its servers and of its sentinels, which
are random: it is the same one if one of the servers is still there, or most of the
sentinels. To begin with, it is that of most addresses, of those that answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import ConfigurationError

#: s that one sentinel may take, where the caller gives no other time.
TIMEOUT = 0.5
MOST_BYTES = 1 << 20  # of all its replies to one question
SECOND_OPINION = 0.2  # s, for each of the others where the service is not known yet
REBUILT_NS = 60_000_000_000  # then a service is taken that has no known id

OTHER_SERVICE = "is of another service of this name: give each a name of its own"

Address = tuple[str, int]


class Answer(NamedTuple):
    """What one sentinel tells of its service."""

    place: Address  # of the sentinel itself
    primary: Address | str  # or why there is none
    replicas: int
    servers: set[str]  # run ids
    sentinels: set[str]  # likewise
    error: Exception | None  # why it does not tell these

    def is_of(self, other: Answer) -> bool:
        """Return whether both are about one service, as far as is told."""
        return (
            self.error is not None
            or other.error is not None
            or not self.servers.isdisjoint(other.servers)
            or 2 * len(self.sentinels & other.sentinels) > len(other.sentinels)
        )


class Sentinels:
    """The sentinels of one service: their addresses, and how to log in to them.

    `options` are arguments of `redis.Redis` for each of them, its passwords too, which
    no repr shows. Those that answer are asked in turn, a time each: one that was cut
    off with an old primary goes on to name that.
    """

    def __init__(
        self,
        service: str,
        addresses: tuple[Address, ...],
        options: Mapping[str, Any],
        min_other: int = 0,
        force_master_ip: str | None = None,
        replicas: int = 0,
    ) -> None:
        self.service, self.addresses = service, addresses
        self.place = f"{shown(addresses[0])}/{service}"  # for messages; stays
        self.min_other, self.force_master_ip = min_other, force_master_ip
        self.replicas = replicas  # as many as were ever known: a reset forgets some
        self.warning: str | None = None  # of the last answer
        self._known: Answer | None = None
        self._strange_ns = 0  # since then no answer was about that one
        self._strange: set[Address] = set()  # their answers were about others
        self._options = {
            name: each for name, each in options.items() if each is not None
        }
        for name in ("socket_timeout", "socket_connect_timeout"):
            self._options.setdefault(name, TIMEOUT)
        try:
            self._asker(addresses[0])  # no I/O: the options are tried
        except Exception as error:
            raise ConfigurationError(
                f"the options of the sentinels: {type(error).__name__}, allowed "
                "are those of redis.Redis"
            ) from None

    def __repr__(self) -> str:
        return f"<Sentinels {getattr(self, 'place', '')}>"

    def find_primary(self) -> Address | str:
        """Return the primary's address, or why there is none; blocks.

        Takes up to the timeout of a sentinel for each that does not answer.
        """
        failures: list[str] = []
        answers: list[Answer] = []
        known, among = self._known, len(self.addresses)
        for address in self.addresses:
            limit = SECOND_OPINION if answers and known is None else None
            found = self._asked(address, limit)
            if isinstance(found, str):
                failures.append(f"{shown(address)} {found}")
                continue
            answers.append(found)
            if _is_ours(found, known, answers, among) and self._taken(found, answers):
                return found.primary
        self._strange_ns = self._strange_ns or time.monotonic_ns()
        if known is None:
            among = len(answers)
        elif time.monotonic_ns() - self._strange_ns > REBUILT_NS:
            known = None
        for found in answers:
            is_ours = _is_ours(found, known, answers, among)
            if is_ours and self._taken(found, answers):
                return found.primary
            why = found.primary if is_ours else OTHER_SERVICE
            failures.append(f"{shown(found.place)} {why}")
        return f"no primary of {self.service!r}: {'; '.join(failures)}"

    def _taken(self, found: Answer, answers: list[Answer]) -> bool:
        """Note an answer about this service; return whether it has a primary."""
        self._known, self._strange_ns, self.warning = found, 0, None
        self.replicas = max(self.replicas, found.replicas)
        for each in answers:
            self._strange -= {each.place}
            if not each.is_of(found):
                self._strange |= {each.place}
        if found.error is not None:
            self.warning = (
                f"its sentinels do not tell their run ids ({found.error}): whether an "
                "address belongs to another service by now is not seen; grant "
                "+sentinel|slaves +sentinel|sentinels +sentinel|myid"
            )
        elif self._strange:
            places = ", ".join(map(shown, sorted(self._strange)))
            self.warning = f"the sentinel at {places} {OTHER_SERVICE}; not believed"
        if isinstance(found.primary, str):
            return False
        addresses, at = self.addresses, self.addresses.index(found.place)
        self.addresses = *addresses[at + 1 :], found.place, *addresses[:at]
        return True

    def _asker(self, address: Address, limit: float | None = None) -> Any:
        from redis._parsers import _RESP2Parser
        from redis.backoff import NoBackoff
        from redis.retry import Retry
        from redis.sentinel import Sentinel

        # Without its retries: with them a sentinel that is down takes seconds.
        options = {"retry": Retry(NoBackoff(), 0), **self._options, "protocol": 2}
        if limit is not None:
            options |= {"socket_timeout": limit, "socket_connect_timeout": limit}
        asker = Sentinel(  # type: ignore[no-untyped-call]
            [address],
            min_other_sentinels=self.min_other,
            sentinel_kwargs=options,
            force_master_ip=self.force_master_ip,
        )
        pool = asker.sentinels[0].connection_pool
        seconds = float(options["socket_timeout"])

        class Bounded(pool.connection_class):  # type: ignore[misc, name-defined]
            def _connect(self) -> BoundedSocket:
                return BoundedSocket(super()._connect(), seconds)

        pool.connection_class = Bounded
        pool.connection_kwargs["parser_class"] = _RESP2Parser
        return asker

    def _asked(self, address: Address, limit: float | None) -> Answer | str:
        """Return what one sentinel answers, or why that is no address."""
        from redis.exceptions import AuthenticationError, RedisError

        asker = self._asker(address, limit)
        try:
            asking = asker.sentinels[0].pipeline(transaction=False)
            asking.sentinel_masters()
            asking.execute_command("SENTINEL SLAVES", self.service)
            asking.execute_command("SENTINEL SENTINELS", self.service)
            asking.execute_command("SENTINEL MYID")
            masters, *lists, own = asking.execute(raise_on_error=False)
            if isinstance(masters, Exception):
                raise masters
            state = masters.get(self.service)
        except AuthenticationError as error:
            return f"refused the login of sentinel_username, sentinel_password: {error}"
        except RedisError as error:
            return f"did not answer: {error}"
        except Exception as error:  # of an option, whose text may be a password
            return f"could not be asked: {type(error).__name__}"
        finally:
            asker.sentinels[0].close()
        if state is None:
            return "knows no such name"
        primary: Address | str = self.force_master_ip or state["ip"], int(state["port"])
        if not asker.check_master_state(state, self.service):
            primary = "says that its primary is down, or sees too few other sentinels"
        told = address, primary, state.get("num-slaves", 0)
        refused = next((each for each in lists if isinstance(each, Exception)), None)
        if refused is not None:
            return Answer(*told, set(), set(), refused)
        servers, sentinels = ({one["runid"] for one in each} for each in lists)
        if isinstance(own, bytes):  # since Redis 6.2
            sentinels.add(own.decode())
        servers.add(state["runid"])
        return Answer(*told, servers - {""}, sentinels - {""}, None)


def _is_ours(
    found: Answer, known: Answer | None, answers: list[Answer], among: int
) -> bool:
    if known is not None:
        return found.is_of(known)
    return 2 * sum(map(found.is_of, answers)) > among


class BoundedSocket:
    """A socket that raises TimeoutError after so many seconds, or MOST_BYTES."""

    def __init__(self, socket: Any, seconds: float) -> None:
        self._socket, self._until = socket, time.monotonic() + seconds
        self._left = MOST_BYTES

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def recv(self, size: int) -> bytes:
        left = self._until - time.monotonic()
        if left <= 0 or self._left <= 0:
            raise TimeoutError("takes too long, or has no end")
        timeout = self._socket.gettimeout()  # 0: redis-py looks whether anything came
        self._socket.settimeout(left if timeout is None else min(left, timeout))
        received: bytes = self._socket.recv(min(size, self._left))
        self._left -= len(received)
        return received


def shown(address: Address) -> str:
    """Return an address as text."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def refuse_without_redis_py() -> None:
    """Raise ConfigurationError where redis-py is missing."""
    try:
        import redis.sentinel  # noqa: F401 - here: in a look-up it would take its time
    except ImportError:
        raise ConfigurationError(
            "a Sentinel service needs redis-py: pip install 'fastredlock[sentinel]'"
        ) from None
