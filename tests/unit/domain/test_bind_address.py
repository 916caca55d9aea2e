from __future__ import annotations

import pytest

from peerd.domain.bind_address import SystemdSocket, TcpAddress, UnixAddress, parse_bind_address
from tests.support.rows import rows


@rows("text, binding", [
    ("127.0.0.1:8080", TcpAddress("127.0.0.1", 8080)), ("localhost:80", TcpAddress("localhost", 80)),
    ("[::]:443", TcpAddress("::", 443)), ("[0:0::1]:1", TcpAddress("::1", 1)), (":0", TcpAddress("", 0)),
    ("unix:relative.sock", UnixAddress("relative.sock")), ("unix:/run/a:b", UnixAddress("/run/a:b")),
    ("systemd:site.socket", SystemdSocket("site.socket")),
])  # fmt: skip
def test_a_valid_address_is_read(text: str, binding: object) -> None:
    assert parse_bind_address(text) == binding


@rows("text, problem", [
    ("", "names no port"), ("8080", "names no port"), ("localhost", "names no port"), ("127.0.0.1:", "is no port"),
    ("127.0.0.1:65536", "is no port"), ("127.0.0.1:-1", "is no port"), ("127.0.0.1:٣", "is no port"),
    ("::1:80", "an IPv6 address stands in brackets"), ("[::1%lo:80", "is neither an address nor the name of a host"),
    ("[::g]:80", "is no IPv6 address"), ("http://localhost:80", "is neither an address nor the name of a host"),
    ("a b:80", "is neither an address nor the name of a host"),
    ("-a:80", "is neither an address nor the name of a host"), ("unix:", "names no file"),
    ("unix:/run/", "names no file"), ("unix:/a\0b", "names no file"), ("unix:" + "ü" * 60, "at most 107 bytes"),
    ("systemd:", "is no name of a systemd socket"), ("systemd:a:b", "is no name of a systemd socket"),
    ("x" * 100_000 + ":80", "is neither an address nor the name of a host"),
])  # fmt: skip
def test_an_invalid_address_is_refused_with_a_short_message(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        parse_bind_address(text)
    assert len(str(refused.value)) < 400
