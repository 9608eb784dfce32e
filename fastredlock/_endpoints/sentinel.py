"""A service of Redis Sentinel: which server is its primary, asked for each connection.

docs/endpoints-inside.md has the theory. A connection that is to be opened asks the
sentinels for the address, in the thread of its look-up (src_cython/master/lookup.pyx);
nothing else does. redis-py speaks to them; of its objects none is kept between two
questions. Its timeouts are of one recv(2) each, and hiredis makes a list as long as a
reply announces. So its sockets are bounded here, and its parser of Python reads them: a
sentinel that answers by drops, or without an end, is one that does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigurationError

#: s that one sentinel may take, where the caller gives no other time.
TIMEOUT = 0.5
MOST_BYTES = 1 << 20  # of all its replies to one question

Address = tuple[str, int]


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
        failures = []
        addresses = self.addresses
        for at, address in enumerate(addresses):
            found = self._asked(address)
            if not isinstance(found, str):
                self.addresses = *addresses[at + 1 :], address, *addresses[:at]
                return found
            failures.append(f"{shown(address)} {found}")
        return f"no primary of {self.service!r}: {'; '.join(failures)}"

    def _asker(self, address: Address) -> Any:
        from redis._parsers import _RESP2Parser
        from redis.backoff import NoBackoff
        from redis.retry import Retry
        from redis.sentinel import Sentinel

        # Without its retries: with them a sentinel that is down takes seconds.
        options = {"retry": Retry(NoBackoff(), 0), **self._options, "protocol": 2}
        asker = Sentinel(  # type: ignore[no-untyped-call]
            [address],
            min_other_sentinels=self.min_other,
            sentinel_kwargs=options,
            force_master_ip=self.force_master_ip,
        )
        pool = asker.sentinels[0].connection_pool
        seconds = float(self._options["socket_timeout"])

        class Bounded(pool.connection_class):  # type: ignore[misc, name-defined]
            def _connect(self) -> BoundedSocket:
                return BoundedSocket(super()._connect(), seconds)

        pool.connection_class = Bounded
        pool.connection_kwargs["parser_class"] = _RESP2Parser
        return asker

    def _asked(self, address: Address) -> Address | str:
        """Return what one sentinel answers, or why that is no address."""
        from redis.exceptions import AuthenticationError, RedisError

        asker = self._asker(address)
        try:
            state = asker.sentinels[0].sentinel_masters().get(self.service)
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
        self.replicas = max(self.replicas, state.get("num-slaves", 0))
        if not asker.check_master_state(state, self.service):
            return "says that its primary is down, or sees too few other sentinels"
        return self.force_master_ip or state["ip"], int(state["port"])


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
