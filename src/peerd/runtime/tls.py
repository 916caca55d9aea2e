"""TLS of servers."""

from __future__ import annotations

import ssl
from pathlib import Path


def server_tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The context of a server's connections by TLS, 1.2 or later.

    Args:
        certificate: a PEM file with the certificate and those that signed it; None: there is no TLS.
        key: a PEM file with its key.

    Raises:
        OSError, ssl.SSLError: the certificate or its key cannot be loaded.
    """
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context
