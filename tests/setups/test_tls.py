"""rediss:// against real servers, with certificates made here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fastredlock import ConfigurationError, ReleaseStatus
from tests.support.calls import granted, reason
from tests.support.certificates import Certificates, tls_master
from tests.support.fake_server import Stranger
from tests.support.fixtures import MakeLocks
from tests.support.keys import KEY
from tests.support.waiting import stopwatch, wait_until

SPEAKS = "does the server speak"
ROUND = 0.3  # s; the round timeout of these tests


@pytest.fixture(scope="module")
def tls_ports(certificates: Certificates) -> Iterator[list[int]]:
    """Three masters that speak TLS, and ask for no client certificate."""
    with ExitStack() as opened:
        yield [opened.enter_context(tls_master(certificates))[1] for _ in range(3)]


@pytest.fixture
def options(certificates: Certificates) -> str:
    """The option of a URL that trusts our CA."""
    return f"?ssl_ca_certs={certificates.authority}"


def url(port: int, options: str = "", login: str = "", host: str = "127.0.0.1") -> str:
    return f"rediss://{login}{host}:{port}/0{options}"


# --- it locks -------------------------------------------------------------------------


def test_many_at_once_when_over_tls_then_all_are_granted_and_released(
    make_locks: MakeLocks, tls_ports: list[int], options: str
) -> None:
    # A round gets 2 s: a machine that gives this process no time for a moment must not
    # make a vote SILENT. Counted, so that a failure says how many had another status.
    masters = [url(port, options) for port in tls_ports]
    locks = make_locks(masters, ttl=30, round_timeout=2)
    leases = locks.acquire_each([str(i) for i in range(600)])
    assert Counter(lease is not None for lease in leases) == {True: 600}
    statuses = Counter(locks.release_each(leases))
    assert statuses == {ReleaseStatus.RELEASED: 600}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls_when_the_server_has_one_version_then_it_is_spoken(
    make_locks: MakeLocks, certificates: Certificates, options: str, version: str
) -> None:
    with tls_master(certificates, version=version) as (_, port):
        granted(make_locks([url(port, options)]).acquire(KEY, timeout=0)).release()


# --- trusted certificates -------------------------------------------------------------


REFUSED = [
    ("127.0.0.1", "", ["TLS:", "certificate"]),  # the system's CAs alone
    ("localhost", "ca", ["hostname mismatch", "localhost"]),
]
ACCEPTED = [
    ("127.0.0.1", "system"),  # where one of the system's CAs signed it
    ("127.0.0.1", "?ssl_cert_reqs=none"),
    ("localhost", "ca&ssl_check_hostname=false"),
    ("localhost", "ca&ssl_server_name=127.0.0.1"),  # that in the certificate
    ("localhost", "ca&ssl_cert_reqs=none"),
]


@pytest.mark.parametrize(("host", "trusted", "texts"), REFUSED)
def test_certificate_when_it_is_not_to_be_trusted_then_is_refused(
    make_locks: MakeLocks, tls_ports: list[int], options: str, host: str, trusted: str,
    texts: list[str],
) -> None:  # fmt: skip
    trust = trusted.replace("ca", options, 1)
    told = reason(make_locks([url(tls_ports[0], trust, host=host)]))
    assert [text for text in texts if text not in told] == []


@pytest.mark.parametrize(("host", "trusted"), ACCEPTED)
def test_certificate_when_it_is_trusted_or_checks_are_waived_then_is_accepted(
    make_locks: MakeLocks, tls_ports: list[int], certificates: Certificates,
    options: str, monkeypatch: pytest.MonkeyPatch, host: str, trusted: str,
) -> None:  # fmt: skip
    if trusted == "system":
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
        trusted = ""
    trust = trusted.replace("ca", options, 1)
    locks = make_locks([url(tls_ports[0], trust, host=host)])
    assert granted(locks.acquire(KEY, timeout=0)).release() is ReleaseStatus.RELEASED


def test_client_when_the_server_wants_a_certificate_then_shows_the_one_it_has(
    make_locks: MakeLocks, certificates: Certificates, options: str
) -> None:
    chain, key = certificates.client
    shown = f"{options}&ssl_certfile={chain}&ssl_keyfile={key}"
    with tls_master(certificates, wants_client=True) as (_, port):
        granted(make_locks([url(port, shown)]).acquire(KEY, timeout=0)).release()
        told = reason(make_locks([url(port, options)]))
    assert "certificate required" in told


# --- the wrong protocol on a port -----------------------------------------------------


PLAIN, TLS = "a plain server", "a server of TLS"
WRONG = [  # what is there, how it is named, and what the vote says
    (PLAIN, "rediss", [SPEAKS]),
    (TLS, "redis", ["rediss://"]),
    (b"-ERR unknown command\r\n", "rediss", ["TLS: wrong version number", SPEAKS]),
    (b"\x15\x03\x03\x00\x02\x02\x46", "redis", ["speaks TLS: use rediss:// for this"]),
    (None, "rediss", ["no answer to TLS yet"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("there", "scheme", "texts"), WRONG)
def test_port_when_it_speaks_otherwise_then_fails_in_the_round_and_says_why(
    make_locks: MakeLocks, tls_ports: list[int], urls: list[str], options: str,
    there: str | bytes | None, scheme: str, texts: list[str],
) -> None:  # fmt: skip
    with Stranger(there if isinstance(there, bytes) else None) as stranger:
        port = stranger.address[1]
        if isinstance(there, str):
            port = tls_ports[0] if there is TLS else urlsplit(urls[0]).port or 0
        master = url(port, options if scheme == "rediss" else "")
        master = master.replace("rediss", scheme)
        with stopwatch() as elapsed:
            told = reason(make_locks([master], round_timeout=ROUND))
    assert [text for text in texts if text not in told] == []
    assert elapsed() < ROUND + 1.0


# --- passwords ------------------------------------------------------------------------


def test_key_password_when_it_is_wrong_or_missing_then_is_in_no_text(
    make_locks: MakeLocks, certificates: Certificates, options: str
) -> None:
    from cryptography.hazmat.primitives import serialization as written

    chain, key = certificates.client
    locked = key.with_name("locked.key")
    plain = written.load_pem_private_key(key.read_bytes(), None)
    locked.write_bytes(
        plain.private_bytes(
            written.Encoding.PEM,
            written.PrivateFormat.PKCS8,
            written.BestAvailableEncryption(b"sesame"),
        )
    )
    client = f"{options}&ssl_certfile={chain}&ssl_keyfile={locked}"
    make_locks([url(1, client + "&ssl_password=sesame")])
    for wrong, text in [("&ssl_password=hunter2", "TLS files"), ("", "is encrypted")]:
        with pytest.raises(ConfigurationError, match=text) as raised:
            make_locks([url(1, client + wrong)])
        assert "hunter2" not in str(raised.value)


# --- slices ---------------------------------------------------------------------------


def test_files_when_exchanged_then_the_next_connection_reads_them_anew(
    make_locks: MakeLocks,
    tls_ports: list[int],
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    (tmp_path / "another").mkdir()
    another = Certificates(tmp_path / "another").authority.read_bytes()
    authority = tmp_path / "ca.pem"
    authority.write_bytes(another)
    options = f"?ssl_ca_certs={authority}"
    locks = make_locks([url(tls_ports[0], options)], round_timeout=ROUND)
    assert reason(locks).startswith("TLS: ")
    authority.unlink()
    assert wait_until(lambda: reason(locks).startswith("TLS files: "))
    authority.write_bytes(certificates.authority.read_bytes())
    assert granted(locks.acquire(KEY)).release() is ReleaseStatus.RELEASED
