"""What clients see through a proxy, in front of a real server of lines."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from peerd.testing import eventually
from tests.faults.proxy import ProxyMode, ProxyThread, TcpProxy

pytestmark = pytest.mark.slow
Connect = Callable[[], socket.socket]


class LineServer(socketserver.ThreadingTCPServer):
    """Answers each line with 'did ' and the line, and remembers what it did."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.did: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _LineHandler)


class _LineHandler(socketserver.StreamRequestHandler):
    server: LineServer

    def handle(self) -> None:
        try:
            for line in self.rfile:
                self.server.did.append(line)
                self.wfile.write(b"did " + line)
        except OSError:
            return


@pytest.fixture
def server() -> Iterator[LineServer]:
    with LineServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: LineServer) -> Iterator[TcpProxy]:
    with ProxyThread() as proxies:
        yield proxies.proxy(server.server_address[1])


@pytest.fixture
def connect(proxy: TcpProxy) -> Iterator[Connect]:
    opened: list[socket.socket] = []

    def open_one() -> socket.socket:
        opened.append(socket.create_connection(("127.0.0.1", proxy.port), timeout=10))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def request(client: socket.socket, line: bytes) -> bytes:
    client.sendall(line)
    return client.recv(1000)


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1000) == b""
    except ConnectionResetError:
        return True


def test_requests_and_replies_pass_until_a_client_or_the_connections_go(connect: Connect, proxy: TcpProxy) -> None:
    one, two, three = connect(), connect(), connect()
    for client, letter in ((one, b"a"), (two, b"b"), (three, b"c"), (one, b"d")):
        assert request(client, letter + b"\n") == b"did " + letter + b"\n"
    assert proxy.connections == 3
    one.close()
    eventually(lambda: proxy.connections == 2)
    assert proxy.cut() == 2
    assert all(map(is_closed, (two, three)))
    assert request(connect(), b"e\n") == b"did e\n"


def test_what_is_dropped_reaches_no_one_and_its_connections_are_closed_afterwards(
    connect: Connect, proxy: TcpProxy, server: LineServer
) -> None:
    silent, old = connect(), connect()
    assert request(silent, b"a\n") + request(old, b"b\n") == b"did a\ndid b\n"
    proxy.set_mode(ProxyMode.DROP)
    young = connect()
    for client in (old, young):
        client.sendall(b"lost\n")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1000)
        client.settimeout(10)
    proxy.set_mode(ProxyMode.PASS)
    assert is_closed(old)
    assert is_closed(young)
    assert request(silent, b"c\n") == b"did c\n"
    assert request(connect(), b"d\n") == b"did d\n"
    assert server.did == [b"a\n", b"b\n", b"c\n", b"d\n"]


def test_a_refusing_proxy_does_not_listen_and_has_the_same_port_afterwards(connect: Connect, proxy: TcpProxy) -> None:
    client = connect()
    assert request(client, b"a\n") == b"did a\n"
    port = proxy.port
    proxy.set_mode(ProxyMode.REFUSE)
    assert is_closed(client)
    with pytest.raises(ConnectionRefusedError):
        connect()
    proxy.set_mode(ProxyMode.PASS)
    assert proxy.port == port
    assert request(connect(), b"b\n") == b"did b\n"


def test_a_lost_reply_is_to_what_the_server_did(connect: Connect, proxy: TcpProxy, server: LineServer) -> None:
    for number, after in enumerate((0, 3), 1):
        proxy.lose_replies(1, to=b"COMMIT", after=after)
        client = connect()
        assert request(client, b"INSERT\n") == b"did INSERT\n"
        client.sendall(b"COMMIT\n")
        if after:
            assert client.recv(1000) == b"did"
        assert is_closed(client)
        assert server.did[-2:] == [b"INSERT\n", b"COMMIT\n"]
        assert proxy.lost_replies == number
        assert request(connect(), b"COMMIT\n") == b"did COMMIT\n"


def test_delays_and_limits_make_it_slow_and_end(connect: Connect, proxy: TcpProxy) -> None:
    client = connect()
    proxy.set_mode(ProxyMode.PASS, delay=0.1)
    began = time.monotonic()
    assert request(client, b"a\n") == b"did a\n"
    assert time.monotonic() - began >= 0.2
    proxy.set_mode(ProxyMode.PASS, bytes_per_second=50)
    began = time.monotonic()
    assert request(client, b"ten bytes\n") == b"did ten bytes\n"
    assert time.monotonic() - began >= (10 + 14) / 50
    proxy.set_mode(ProxyMode.PASS)
    assert request(client, b"b\n") == b"did b\n"


def test_a_server_that_is_away_closes_the_connection() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as nobody:
        port = nobody.getsockname()[1]
    with ProxyThread() as proxies:
        proxy = proxies.proxy(port)
        with closing(socket.create_connection(("127.0.0.1", proxy.port), timeout=10)) as client:
            assert is_closed(client)
