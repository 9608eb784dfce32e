"""A TLS session in memory: records cut anywhere, and sessions that fail."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest

from fastredlock._core import Engine, MasterState, draw_token
from fastredlock._options.masters import Endpoint
from tests.support import by_hand as hand
from tests.support.by_hand import SCRIPTS, START_NS, TERMS, S, info, make_ready
from tests.support.certificates import Certificates
from tests.support.core import TlsSession


class Peer:
    """The server's side of a TlsSession, in memory."""

    def __init__(self, certificates: Certificates) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = certificates.server_context(wants_client=False)
        self.session = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.is_established = False

    def answer(self, records: bytes) -> bytes:
        """Take the client's records; return ours, the handshake's first."""
        self.incoming.write(records)
        try:
            if not self.is_established:
                self.session.do_handshake()
                self.is_established = True
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()


def new_session(certificates: Certificates) -> TlsSession:
    context = ssl.create_default_context(cafile=str(certificates.authority))
    return TlsSession(context, "127.0.0.1")


def received(session: TlsSession, data: bytes, cut: int, peer: Peer) -> bytes:
    """Feed data in two slices; let the peer have what is said in between."""
    plain, pieces = b"", [data[:cut], data[cut:]]
    for piece in pieces:
        text, records = session.receive(piece)
        plain += text
        if records:
            pieces.append(peer.answer(records))  # session tickets, in TLS 1.3
    return plain


def test_records_when_cut_in_two_at_every_byte_then_the_plain_text_is_whole(
    certificates: Certificates,
) -> None:
    session, peer = new_session(certificates), Peer(certificates)
    flight = peer.answer(session.start())
    assert received(session, flight, len(flight) // 2, peer) == b""
    assert session.is_established
    peer.answer(session.encrypt(b"*1\r\n$4\r\nPING\r\n"))
    text = b"+OK\r\n" + draw_token() * 20
    for cut in range(len(text)):
        peer.session.write(text)
        assert received(session, peer.outgoing.read(), cut, peer) == text
    assert b"PING" in peer.session.read(100)


@pytest.mark.slow
def test_handshake_when_cut_in_two_at_every_tenth_byte_then_is_established(
    certificates: Certificates,
) -> None:
    length = len(Peer(certificates).answer(new_session(certificates).start()))
    for cut in range(0, length, 10):
        session, peer = new_session(certificates), Peer(certificates)
        received(session, peer.answer(session.start()), cut, peer)
        assert session.is_established
        assert peer.is_established


class PlainContext:
    """A context whose sessions leave all as it is; a write may run Python before."""

    name = ""

    def __init__(self, before_write: Callable[[], None] = lambda: None) -> None:
        self.before_write = before_write

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *, server_hostname: str
    ) -> object:
        self.incoming, self.outgoing = incoming, outgoing
        self.name = server_hostname
        return self

    def do_handshake(self) -> None:
        pass

    def read(self, size: int) -> bytes:
        if not self.incoming.pending:
            raise ssl.SSLWantReadError
        return self.incoming.read(size)

    def write(self, data: bytes) -> None:
        self.before_write()
        self.outgoing.write(data)


def engine_over(context: PlainContext, host: str = "127.0.0.1") -> Engine:
    """Make an engine of one master, whose connections this context wraps."""
    return Engine([Endpoint(host, 7001)], SCRIPTS, S, (context,))


def test_handshake_when_tls_refuses_to_write_then_the_connection_is_lost() -> None:
    errors = iter((None, OSError("bad write")))

    def fail() -> None:
        if (error := next(errors)) is not None:
            raise error

    engine = make_ready(engine_over(PlainContext(fail)), [info()])
    assert engine.states == ((MasterState.BACKOFF, "TLS: bad write"),)


def test_commands_when_a_handler_locks_in_ssl_then_leave_in_the_order_of_entries() -> (
    None
):
    context = PlainContext()
    engine = make_ready(engine_over(context), [info()])
    assert engine.states == ((MasterState.READY, ""),)

    def submit(token: bytes) -> None:
        hand.submit(engine, engine.new_round(0, token, token, TERMS), START_NS)

    def lock() -> None:
        context.before_write = lambda: None
        submit(b"second")
        assert hand.outgoing(engine, 0) == b""

    context.before_write = lock
    submit(b"first")
    sent = hand.outgoing(engine, 0)
    assert 0 < sent.index(b"first") < sent.index(b"second")


def test_bytes_when_a_peer_speaks_before_tls_has_begun_then_wait_for_it() -> None:
    engine = engine_over(PlainContext())
    assert hand.open_due(engine, True, START_NS) == [0]
    hand.connected(engine, 0, START_NS)
    hand.receive(engine, 0, b"-DENIED\r\n", START_NS)
    assert engine.states[0][0] is MasterState.HANDSHAKE


def test_handshake_when_a_name_has_a_final_dot_then_is_asked_for_without_it() -> None:
    """From: valkey-io/valkey-operator#425; RFC 6066, section 3."""
    context = PlainContext()
    make_ready(engine_over(context, "redis-0.test."), [info()])
    assert context.name == "redis-0.test"


def test_session_when_the_peer_says_garbage_then_raises_an_os_error(
    certificates: Certificates,
) -> None:
    session = new_session(certificates)
    session.start()
    with pytest.raises(OSError, match=r"(?i)wrong version|record"):
        session.receive(b"HTTP/1.1 400 Bad Request\r\n")
