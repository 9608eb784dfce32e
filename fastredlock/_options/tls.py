"""TLS settings -> an ssl.SSLContext; imported only where a master has TLS."""

from __future__ import annotations

import ssl

from ..errors import ConfigurationError
from .endpoint import TLSSettings


def context_of(name: str, tls: TLSSettings) -> ssl.SSLContext:
    """Return the context of one master; reads the certificate files.

    Without settings: the system's CAs, a certificate that fits the host name. Raises
    ConfigurationError for a file that cannot be read or does not fit its key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.check_hostname
    context.verify_mode = getattr(ssl, f"CERT_{tls.cert_reqs.upper()}")
    if tls.min_version is not None:
        context.minimum_version = ssl.TLSVersion(tls.min_version)
    try:
        load_files(context, tls)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigurationError(f"{name}: TLS files: {error}") from error
    return context


def load_files(context: ssl.SSLContext, tls: TLSSettings) -> None:
    """Load the CAs, and the client certificate where there is one."""
    if tls.ca_certs or tls.ca_path or tls.ca_data:
        context.load_verify_locations(tls.ca_certs, tls.ca_path, tls.ca_data)
    elif tls.cert_reqs != "none":
        context.load_default_certs()
    if tls.certfile:
        context.load_cert_chain(tls.certfile, tls.keyfile, tls.password or no_password)


def no_password() -> str:
    """Refuse to ask on the terminal for the password of an encrypted key."""
    raise ValueError("the key is encrypted, and no ssl_password was given")
