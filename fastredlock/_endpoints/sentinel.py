"""A service of Redis Sentinel: which server is its primary, asked for each connection.

Theory of operation. A connection that is to be opened asks the sentinels for the
address, in the thread of its look-up (src_cython/master/lookup.pyx); nothing else does.
So a failover is noticed where a connection ends, and by a reply that only a replica
gives (READONLY), which ends it: then the address is asked for anew. The answer may be
out of date, of a sentinel that was cut off: so the handshake refuses a replica.

redis-py speaks to the sentinels; of its objects none is kept between two questions, so
there is nothing to be closed, and a forked child shares no socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigurationError

#: s that one sentinel may take, where the caller gives no other time.
TIMEOUT = 0.5

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
        from redis.backoff import NoBackoff
        from redis.retry import Retry
        from redis.sentinel import Sentinel

        # Without its retries: with them a sentinel that is down takes seconds.
        options = {"retry": Retry(NoBackoff(), 0), **self._options}
        return Sentinel(  # type: ignore[no-untyped-call]
            [address],
            min_other_sentinels=self.min_other,
            sentinel_kwargs=options,
            force_master_ip=self.force_master_ip,
        )

    def _asked(self, address: Address) -> Address | str:
        """Return what one sentinel answers, or why that is no address."""
        from redis.exceptions import RedisError
        from redis.sentinel import MasterNotFoundError

        asked = self._asker(address)
        is_usable = asked.check_master_state

        def taken(state: Any, service: str) -> Any:
            self.replicas = max(self.replicas, state.get("num-slaves", 0))
            return is_usable(state, service)

        asked.check_master_state = taken
        try:
            host, port = asked.discover_master(self.service)
        except MasterNotFoundError as error:
            # "No master found for 'name' : client - error", the end if it is down.
            cause = str(error).partition(" : ")[2].rpartition(" - ")[2]
            return cause or "knows no such name, its primary is down, or sees too few"
        except RedisError as error:
            return f"refused: {error}"
        except Exception as error:  # of an option, whose text may be a password
            return f"could not be asked: {type(error).__name__}"
        finally:
            asked.sentinels[0].close()
        return host, int(port)


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
