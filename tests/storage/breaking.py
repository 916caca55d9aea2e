"""What fails between a client, a server and nodes: connections that end or change bytes, and puts that are killed."""

from __future__ import annotations

import io
import socket
import threading
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import Any, Final, Self

import pytest
from blake3 import blake3

from peerd import Client
from peerd.store.files import listing
from peerd.store.schema.tables import disks
from tests.storage.nodes import StorageCluster

MIB: Final = 1024 * 1024
ALL: Final = 2**40
"""More bytes, and more connections, than a test has."""


class Relay:
    """Relays connections to a server, and ends the first ones after some bytes; a context manager.

    Args:
        url: of the server.
        after: bytes of a request that are relayed.
        answers: bytes of an answer that are relayed, for each connection; its request is relayed as a whole.
        broken: how many connections are ended.
        method: of the requests that are broken.
        damages: change a byte in each piece of an answer but the first.
    """

    def __init__(
        self,
        url: str,
        *,
        after: int = ALL,
        answers: Iterable[int] = repeat(ALL),
        broken: int = ALL,
        method: bytes = b"",
        damages: bool = False,
    ) -> None:
        self.lead_to(url)
        self._after, self._answers = after, iter(answers)
        self._broken, self._method, self._damages = broken, method, damages
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.ended = 0
        self._lock = threading.Lock()
        self._accepted: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lead_to(self, url: str) -> None:
        """Relay the next connections to this server."""
        host, _, port = url.removeprefix("http://").partition(":")
        self._target = (host, int(port))

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._accepted.append(accepted)
            self._threads.append(threading.Thread(target=self._serve, args=(accepted,)))
            self._threads[-1].start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted, suppress(OSError), socket.create_connection(self._target) as other:
            is_it = accepted.recv(len(self._method), socket.MSG_PEEK) == self._method if self._method else True
            breaks = is_it and self._takes_turn()
            answering = threading.Thread(target=self._answer, args=(other, accepted, breaks))
            answering.start()
            left = self._after if breaks else ALL
            with suppress(OSError):
                while left and (data := accepted.recv(min(left, 65_536))):
                    other.sendall(data)
                    left -= len(data)
            if not left:
                self.ended += 1
                accepted.close()
            with suppress(OSError):
                other.shutdown(socket.SHUT_RDWR if not left else socket.SHUT_WR)
            answering.join()

    def _takes_turn(self) -> bool:
        """Whether this connection is one of those that are ended."""
        with self._lock:
            self._broken -= 1
            return self._broken >= 0

    def _answer(self, other: socket.socket, accepted: socket.socket, breaks: bool) -> None:  # noqa: FBT001
        left, is_first = next(self._answers, 0) if breaks else ALL, True
        with suppress(OSError):
            while data := bytearray(other.recv(100_000)):
                if self._damages and not is_first:
                    data[-1] ^= 1
                accepted.sendall(data[:left])
                left, is_first = left - len(data), False
                if left <= 0:
                    self.ended += 1
                    break
            accepted.shutdown(socket.SHUT_RDWR)

    def break_next(self, connections: int) -> None:
        """End so many of the next connections."""
        with self._lock:
            self._broken = connections

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for accepted in self._accepted:  # also those that a client keeps for later
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


def serve_at(cluster: StorageCluster, node: str, url: str) -> None:
    """Let the catalogue name another address of a node."""
    cluster.catalogue.change(disks, disks.c.id == cluster.nodes[node].disk, url=url)
    cluster.nodes[node].node.verifier.url = url


def nowhere() -> str:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


@contextmanager
def breaking_nodes(cluster: StorageCluster, **how: Any) -> Iterator[list[Relay]]:
    """All nodes are reached by relays that break connections."""
    with ExitStack() as opened:
        relays = {name: opened.enter_context(Relay(node.url, **how)) for name, node in cluster.nodes.items()}
        for name, relay in relays.items():
            serve_at(cluster, name, relay.url)
            opened.callback(serve_at, cluster, name, cluster.nodes[name].url)
        yield list(relays.values())


@contextmanager
def breaking_server(address: str, secret: str, **how: Any) -> Iterator[tuple[Relay, Client]]:
    """A client that reaches the server by a relay that breaks connections."""
    with Relay(address, **how) as relay, Client(relay.url, token=secret) as remote:
        yield relay, remote


def put(client: Client, source: Any, path: str = "films/f", **more: Any) -> Any:
    """Put something in parts."""
    return client.files.put(source, path, parts_above=MIB, **more)


def got(client: Client, path: str = "films/f") -> bytes:
    target = io.BytesIO()
    client.files.get(path, target)
    return target.getvalue()


def unfinished(cluster: StorageCluster) -> list[listing.UnfinishedUpload]:
    return cluster.catalogue.store.read(listing.list_unfinished, None, "", "", 100).uploads


def parts_of(cluster: StorageCluster) -> list[Path]:
    return [path for node in cluster.nodes.values() for path in (node.paths[0] / "parts").iterdir()]


def interrupted(client: Client, cluster: StorageCluster, source: Any, *, at: int = 5 * MIB, **more: Any) -> str:
    """Put until so many bytes are sent, and end as a killed process does: nothing is tidied up; the upload's id."""

    class Killed(BaseException):
        pass

    def progress(done: int, _: int | None) -> None:
        if done > at:
            raise Killed

    with pytest.raises(Killed):
        put(client, source, progress=progress, **more)
    return unfinished(cluster)[-1].id


def with_digest(data: bytes) -> bytes:
    return data + blake3(data).digest()


@contextmanager
def little_memory(most: int) -> Iterator[None]:
    """No more bytes than these are needed by a block; the nodes and the server of this process are counted, too."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most
