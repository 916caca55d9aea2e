"""The `bind` setting: "127.0.0.1:8080", ":8080", "[::1]:8080", "unix:/path", "systemd:NAME".

Standard library only, because the master uses it.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

MAX_UNIX_PATH_BYTES: Final = 107
"""The longest address of a unix socket (unix(7)), so that clients can connect to it as well."""

_SYSTEMD_NAME: Final = re.compile(r"[!-9;-~]{1,255}")  # printable ASCII without a colon (sd_listen_fds_with_names(3))
_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_HOW: Final = (
    'write "127.0.0.1:8080", ":8080" for every IPv4 address, "[::]:8080" for every IPv6 address, '
    '"unix:/path", or "systemd:NAME"'
)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A TCP address; an empty host is every IPv4 address of the machine, and port 0 a free one."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A unix socket in the file system."""

    path: str


@dataclass(frozen=True, slots=True)
class SystemdSocket:
    """Sockets that systemd has bound, by their FileDescriptorName."""

    name: str


SocketAddress = TcpAddress | UnixAddress | SystemdSocket


def is_local(address: SocketAddress) -> bool:
    """Whether only programs of this machine can connect; unknown of a host's name and of a socket of systemd: false.

    >>> [is_local(parse_bind_address(text)) for text in ("127.0.0.1:80", "[::1]:80", "localhost:80", "unix:/run/a")]
    [True, True, True, True]
    >>> [is_local(parse_bind_address(text)) for text in (":80", "10.0.0.7:80", "db:80", "systemd:site")]
    [False, False, False, False]
    """
    match address:
        case UnixAddress():
            return True
        case SystemdSocket():
            return False
        case TcpAddress(host):
            return host == "localhost" or (_is_ip(host) and ipaddress.ip_address(host).is_loopback)


def parse_bind_address(text: str) -> SocketAddress:
    """The address in a text; raises ValueError with the cause and the possible forms.

    >>> parse_bind_address("[::1]:80"), parse_bind_address(":8080")
    (TcpAddress(host='::1', port=80), TcpAddress(host='', port=8080))
    >>> parse_bind_address("unix:/run/site.sock"), parse_bind_address("systemd:site")
    (UnixAddress(path='/run/site.sock'), SystemdSocket(name='site'))
    >>> parse_bind_address("8080")
    Traceback (most recent call last):
    ...
    ValueError: '8080' names no port; write "127.0.0.1:8080", ":8080" for every IPv4 address, ...
    """
    kind, colon, rest = text.partition(":")
    if colon and kind == "unix":
        return _unix(rest)
    if colon and kind == "systemd":
        if not _SYSTEMD_NAME.fullmatch(rest):
            raise ValueError(f"{_shown(rest)} is no name of a systemd socket (its FileDescriptorName)")
        return SystemdSocket(rest)
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"{_shown(text)} names no port; {_HOW}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535):
        raise ValueError(f"{_shown(port)} is no port: it is a number from 0 to 65535")
    return TcpAddress(_host(host), int(port))


def _unix(path: str) -> UnixAddress:
    if not path or "\0" in path or path.endswith("/"):
        raise ValueError(f"{_shown(path)} names no file for a unix socket; write for example unix:/run/site.sock")
    if len(path.encode("utf-8", "surrogateescape")) > MAX_UNIX_PATH_BYTES:
        raise ValueError(
            f"the path of a unix socket has at most {MAX_UNIX_PATH_BYTES} bytes, and {_shown(path)} is longer; "
            "choose a shorter one, for example below /run"
        )
    return UnixAddress(path)


def _host(host: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        if not _is_ipv6(host[1:-1]):
            raise ValueError(f"{_shown(host)} is no IPv6 address")
        return str(ipaddress.IPv6Address(host[1:-1]))
    if _is_ipv6(host):
        raise ValueError(f'an IPv6 address stands in brackets: "[{_shown(host)[1:-1]}]:8080"')
    if host and not _HOST_NAME.fullmatch(host):
        raise ValueError(f"{_shown(host)} is neither an address nor the name of a host; {_HOW}")
    return host


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_UNIX_PATH_BYTES + 13 else text[:MAX_UNIX_PATH_BYTES] + "…")
