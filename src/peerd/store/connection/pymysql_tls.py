"""PyMySQL connections that share one TLS context per set of TLS options.

PyMySQL creates a context for each connection, which reads every certificate that the machine trusts: 28 ms of
processor time, even where no server certificate is verified. libpq and mysqlclient do not have this cost.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pymysql.connections import Connection

from peerd.runtime.concurrency import ForkSafeLock

FILES: Final = ("ca", "capath", "cert", "key")


class SharedTlsConnection(Connection):
    """PyMySQL's connection with a shared context. A certificate file that was renewed is read again."""

    _contexts: Final[dict[object, ssl.SSLContext]] = {}
    _making: Final = ForkSafeLock()

    def _create_ssl_ctx(self, sslp: ssl.SSLContext | Mapping[str, Any]) -> ssl.SSLContext:
        """Called by PyMySQL with the TLS options."""
        if isinstance(sslp, ssl.SSLContext):
            return sslp
        mtimes = (Path(file).stat().st_mtime_ns if (file := sslp.get(name)) is not None else 0 for name in FILES)
        key = (*sorted(sslp.items(), key=str), *mtimes)
        with self._making:
            context = self._contexts.get(key)
            if context is None:
                context = super()._create_ssl_ctx(sslp) if sslp else _unverified_context()  # type: ignore[misc]  # no stub
                self._contexts[key] = context
            return context


def _unverified_context() -> ssl.SSLContext:
    """The context without TLS options: TLS is used if the server offers it, and its certificate is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
