"""The set-up of docs/production.md, built as it stands there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fastredlock import FastRedlock, cli
from fastredlock.testing import LocalMasters
from tests.support.certificates import Certificates, lacks_tls, started_with_tls
from tests.support.waiting import wait_until

from .documents import ROOT, blocks

TEXTS = blocks(ROOT / "docs" / "production.md", "text")
SERVER, FILES, USERS = (
    next(text for text in TEXTS if text.startswith(begin))
    for begin in ("valkey-server", "--aclfile", "user default")
)


class Setup:
    """Five masters of the page."""

    def __init__(self, opened: ExitStack, folder: Path) -> None:
        self.certificates = Certificates(folder)
        users = folder / "users.acl"
        users.write_text(USERS)
        words = shlex.split(FILES.replace("\\\n", " "))
        paths = {
            "/data/users.acl": f"{users}",
            "/tls/server.crt": f"{self.certificates.server[0]}",
            "/tls/server.key": f"{self.certificates.server[1]}",
            "/tls/ca.crt": f"{self.certificates.authority}",
        }
        assert paths.keys() < {*words}
        options = shlex.split(SERVER.replace("\\\n", " "))[1:]
        options += [paths.get(word, word) for word in words]
        at = options.index("--tls-port")
        del options[at : at + 2]  # of this machine, a free one
        self.masters: list[LocalMasters] = []
        self.ports: list[int] = []
        for _ in range(5):
            master, port = started_with_tls(*options)
            self.masters.append(opened.enter_context(master))
            self.ports.append(port)

    def urls(self, login: str) -> list[str]:
        ca = f"?ssl_ca_certs={self.certificates.authority}"
        return [f"rediss://{login}@127.0.0.1:{port}/0{ca}" for port in self.ports]


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    with ExitStack() as opened:
        try:
            yield Setup(opened, tmp_path_factory.mktemp("setup"))
        except RuntimeError as error:
            if not lacks_tls(error):
                raise
            pytest.skip("the server is built without TLS")


@pytest.fixture
def as_operator(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    masters = ",".join(setup.urls("operator:change-me-too"))
    monkeypatch.setenv("FASTREDLOCK_MASTERS", masters)


def status(*words: str) -> int:
    try:
        return int(cli.main(words))
    except SystemExit as ended:
        return int(str(ended.code))


@pytest.mark.slow
@pytest.mark.usefixtures("as_operator")
def test_masters_when_restarted_one_by_one_under_load_then_no_call_fails(
    setup: Setup,
) -> None:
    """Seen: rights that were given by a command were gone after a restart."""
    assert wait_until(lambda: status("check", "--key", "orders:") == 0)
    over, errors, served = Event(), [], []

    def work(locks: FastRedlock) -> None:
        while not over.is_set():
            try:
                with locks.lock("orders:1", timeout=60):
                    served.append(1)
            except Exception as error:
                errors.append(error)

    with ExitStack() as opened:
        each = [
            opened.enter_context(FastRedlock(setup.urls("locks:change-me")))
            for _ in range(3)
        ]
        kept = each[0].acquire("orders:42", ttl=600)
        threads = [Thread(target=work, args=(locks,)) for locks in each]
        for thread in threads:
            thread.start()
        try:
            for master in setup.masters:
                master.stop(0)
                master.start(0)
                assert wait_until(lambda: status("check", "--key", "orders:") == 0)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert errors == []
        assert served
        assert kept is not None
        assert each[1].acquire("orders:42", timeout=0) is None
        assert kept.release().name == "RELEASED"


@pytest.mark.slow
@pytest.mark.usefixtures("as_operator")
def test_operator_when_logged_in_then_has_the_rights_of_every_command(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    with FastRedlock(setup.urls("locks:change-me")) as locks:
        lease = locks.acquire("orders:7", ttl=60)
        assert lease is not None
        assert [each.warnings for each in locks.health()] == [()] * 5
        assert status("who", "orders:7") == 0
        assert status("list", "orders:*") == 0
        assert status("quarantine") == 0
        assert status("masters") == 0
        assert status("break", "--yes", "orders:7") == 0
        assert "NOPERM" not in "".join(capsys.readouterr())


def test_stranger_when_connected_then_may_do_nothing(setup: Setup) -> None:
    """Seen: the page left the user `default` as it is, who deletes locks."""
    tls: Any = {"ssl": True, "ssl_ca_certs": str(setup.certificates.authority)}
    once = Retry(NoBackoff(), 0)
    for port in setup.ports:
        with redis.Redis("127.0.0.1", port, retry=once, **tls) as stranger:
            for words in ("GET orders:42", "DEL orders:42", "FLUSHALL", "INFO"):
                with pytest.raises(redis.exceptions.AuthenticationError):
                    stranger.execute_command(*words.split())
