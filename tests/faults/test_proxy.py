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


def test_requests_and_replies_pass(connect: Connect) -> None:
    one, two = connect(), connect()
    assert request(one, b"a\n") == b"did a\n"
    assert request(two, b"b\n") == b"did b\n"
    assert request(one, b"c\n") == b"did c\n"


def test_a_connection_ends_when_its_client_or_its_server_goes(connect: Connect, proxy: TcpProxy) -> None:
    client = connect()
    assert request(client, b"a\n") == b"did a\n"
    assert proxy.connections == 1
    client.close()
    eventually(lambda: proxy.connections == 0)


def test_what_is_dropped_reaches_no_one_and_its_connections_are_closed_afterwards(
    connect: Connect, proxy: TcpProxy, server: LineServer
) -> None:
    silent, old = connect(), connect()
    assert request(silent, b"a\n") == b"did a\n"
    assert request(old, b"b\n") == b"did b\n"
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


def test_a_cut_closes_all_that_is_there_and_nothing_that_comes(connect: Connect, proxy: TcpProxy) -> None:
    one, two = connect(), connect()
    assert request(one, b"a\n") == b"did a\n"
    assert request(two, b"a\n") == b"did a\n"
    assert proxy.cut() == 2
    assert is_closed(one)
    assert is_closed(two)
    assert request(connect(), b"b\n") == b"did b\n"


@pytest.mark.parametrize("after", [0, 3])
def test_a_lost_reply_is_to_what_the_server_did(
    after: int, connect: Connect, proxy: TcpProxy, server: LineServer
) -> None:
    proxy.lose_replies(1, to=b"COMMIT", after=after)
    client = connect()
    assert request(client, b"INSERT\n") == b"did INSERT\n"
    client.sendall(b"COMMIT\n")
    if after:
        assert client.recv(1000) == b"did"
    assert is_closed(client)
    assert server.did == [b"INSERT\n", b"COMMIT\n"]
    assert proxy.lost_replies == 1
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
