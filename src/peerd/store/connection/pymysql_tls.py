"""PyMySQL's connections with one TLS context for all that say the same of TLS.

PyMySQL makes a context for each connection, 28 ms of processor time: it reads every certificate that this machine
trusts, even where it asks the server for none. Here a process makes one, and reads certificates only to verify by them.
(libpq and the C driver for MySQL have TLS of their own, and read none that they do not need.)
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final

from pymysql.connections import Connection

FILES: Final = ("ca", "capath", "cert", "key")


class SharedTlsConnection(Connection):
    """A connection as PyMySQL makes it, but for its context."""

    _contexts: Final[dict[object, ssl.SSLContext]] = {}
    _making: Final = Lock()

    def _create_ssl_ctx(self, sslp: ssl.SSLContext | Mapping[str, Any]) -> ssl.SSLContext:
        """The context for these words on TLS: PyMySQL calls it."""
        if isinstance(sslp, ssl.SSLContext):
            return sslp
        key = (*sorted(sslp.items(), key=str), *(_mtime_of(sslp.get(name)) for name in FILES))
        with self._making:
            found = self._contexts.get(key)
            if found is None:
                found = self._contexts[key] = self._create_context(sslp) if sslp else _unverified_context()
            return found

    def _create_context(self, options: Mapping[str, Any]) -> ssl.SSLContext:
        made: ssl.SSLContext = super()._create_ssl_ctx(options)  # type: ignore[misc]  # its stubs leave it out
        return made


def _mtime_of(file: str | None) -> int:
    """A certificate that is renewed is read anew."""
    return 0 if file is None else Path(file).stat().st_mtime_ns


def _unverified_context() -> ssl.SSLContext:
    """What is used where nothing is said of TLS: it is spoken if the server speaks it, whoever that is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
