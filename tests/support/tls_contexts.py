"""A client of HTTP has a TLS context, for plain addresses too: the one without options is made once for a run.

To read the certificates of all authorities takes longer than most requests of tests.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

from httpx import create_ssl_context
from httpx._transports import default


@cache
def _default_context(_of_environment: tuple[str | None, ...]) -> ssl.SSLContext:
    return create_ssl_context()


def _context(**options: Any) -> ssl.SSLContext:
    if options == {"verify": True, "cert": None, "trust_env": True}:
        return _default_context((os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")))
    return create_ssl_context(**options)


setattr(default, "create_ssl_context", _context)  # noqa: B010 - for the checker of types it is a constant
