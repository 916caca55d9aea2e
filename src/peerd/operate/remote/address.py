"""The address of a server, and what a client presents to it."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from peerd.operate.remote.errors import InvalidServer

API: Final = "/api/v1"
TIMEOUT: Final = 60.0
"""Seconds."""
_TOKEN: Final = re.compile(r"[!-~]{1,1000}")


@dataclass(frozen=True)
class ServerAddress:
    """A server.

    Args:
        url: ``http://…`` or ``https://…``, with the path where the API is mounted, if any; or ``unix:`` and the path of
            its socket.
        token: that it takes.
        ca: a file of certificates that are trusted instead of the system's.
        timeout: seconds that an answer may take.

    Raises:
        InvalidServer: one of them cannot be used. The error holds neither the token nor the user of a URL.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise InvalidServer(self.shown, "the token has characters that a token cannot have, or none")
        if not self.timeout > 0:
            raise InvalidServer(self.shown, f"the timeout {self.timeout} is not above 0")
        if self.socket is not None:
            return
        try:
            parts = urlsplit(self.url)
            has_host = bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            has_host = False
            raise InvalidServer(self.shown, "write http://host:port or https://host:port") from None
        if parts.username is not None or parts.password is not None:
            raise InvalidServer(self.shown, "it names a user; a server takes a token, from token= or a file")
        if not has_host or parts.query or parts.fragment or not self.url.isprintable() or " " in self.url:
            raise InvalidServer(self.shown, "write http://host:port or https://host:port")

    @property
    def socket(self) -> str | None:
        """The path of its unix socket, if it has one."""
        return self.url[len("unix:") :].removeprefix("//") if self.url.startswith("unix:") else None

    @property
    def base_url(self) -> str:
        """The URL of the API."""
        return f"{'http://localhost' if self.socket is not None else self.url.rstrip('/')}{API}"

    @property
    def shown(self) -> str:
        """The URL for people, without a user and a password."""
        scheme, separator, rest = self.url.partition("://")
        return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else self.url

    def headers(self) -> dict[str, str]:
        """The headers of each request. An answer is not compressed, so that its size is known."""
        headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "peerd"}
        return headers if self.token is None else headers | {"authorization": f"Bearer {self.token}"}

    def tls(self) -> ssl.SSLContext:
        """The certificates that are trusted."""
        try:
            return ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except (OSError, ssl.SSLError) as error:
            raise InvalidServer(self.shown, f"the certificates of {self.ca} cannot be read: {error}") from None
