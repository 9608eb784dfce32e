# TLS for one master: an SSLObject between two memory buffers, no socket.
#
# Commands go in as plain text and come out as records for the link; bytes that the link
# received go in as records and come out as plain text for the reader. So all else (one
# write per master, polling without the GIL, the commands in flight) is as without TLS.


@cython.final
cdef class TlsSession:
    """The TLS of one connection."""

    cdef object session         # ssl.SSLObject
    cdef object incoming, outgoing      # ssl.MemoryBIO
    cdef readonly bint is_established
    cdef readonly list unencrypted   # plain text that waits for the handshake

    def __init__(self, context, server_hostname):
        from ssl import MemoryBIO

        self.incoming = MemoryBIO()
        self.outgoing = MemoryBIO()
        self.session = context.wrap_bio(
            self.incoming, self.outgoing, server_hostname=server_hostname
        )
        self.unencrypted = []

    def start(self):
        """Begin the handshake; return the first records to send."""
        return self.receive(b"")[1]

    def encrypt(self, bytes plain not None):
        """Encrypt; return the records to send, b"" before the handshake is done."""
        if not self.is_established:
            self.unencrypted.append(plain)
            return b""
        self.session.write(plain)
        return self.outgoing.read()

    def receive(self, bytes records not None):
        """Decrypt; return (plain text, records to send). Raises ssl.SSLError."""
        from ssl import SSLWantReadError

        self.incoming.write(records)
        plain = []
        try:
            if not self.is_established:
                self.session.do_handshake()
                self.is_established = True
                while self.unencrypted:
                    self.session.write(self.unencrypted.pop(0))
            while data := self.session.read(65536):
                plain.append(data)
        except SSLWantReadError:
            pass
        return b"".join(plain), self.outgoing.read()


cdef str tls_error_text(object error):
    # The library's own reason, and its usual cause.
    reason = getattr(error, "verify_message", "") or getattr(error, "reason", None)
    text = f"TLS: {reason or error}".replace("_", " ").lower().replace("tls:", "TLS:")
    if "wrong version" in text or "record layer" in text:
        text += " (does the server speak TLS on this port?)"
    return text


cdef str tls_reason(object error):
    # Why TLS ends the connection; None where the error is not one of TLS.
    return tls_error_text(error) if isinstance(error, (OSError, ValueError)) else None
