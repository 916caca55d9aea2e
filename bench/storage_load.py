"""A client that puts and gets files over several connections, as cheap as Python allows: raw sockets, one process each.

It is the same for each server, so that a ratio compares servers. The bodies are not verified here. It is run as a
program: ``python -m bench.storage_load URL put|get FILES SIZE CONNECTIONS SECRET``, and prints seconds. With an empty
secret requests are not signed.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Final
from urllib.parse import urlsplit

from peerd.storage.transfer.node_signature import NodeSigner

BLOCK: Final = 1024 * 1024
MAX_HEAD: Final = 64 * 1024
TIMEOUT: Final = 300.0


@dataclass(frozen=True, slots=True)
class FileLoad:
    """What one client does.

    Attributes:
        url: of the server, with the folder of the files.
        method: PUT or GET.
        files: how many, in all connections.
        size: bytes of each.
        connections: at once.
        secret: that requests are signed with; empty: they are not.
    """

    url: str
    method: str
    files: int
    size: int
    connections: int
    secret: str

    def target(self, number: int) -> str:
        """The path of a file."""
        return f"{urlsplit(self.url).path}/{number // 1000:03}-{number:06}"


class FileConnection:
    """One connection, and the requests on it, one after another."""

    def __init__(self, load: FileLoad) -> None:
        parts = urlsplit(load.url)
        self._load = load
        self._host, self._origin = parts.netloc, f"{parts.scheme}://{parts.netloc}"
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 80), TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._signer = NodeSigner(load.secret, time.time) if load.secret else None
        self._buffer = memoryview(bytearray(BLOCK))
        self._random = memoryview(os.urandom(BLOCK))

    def request(self, number: int) -> None:
        """Put or get a file. Raises RuntimeError for other responses than of success."""
        load, target = self._load, self._load.target(number)
        lines = [f"{load.method} {target} HTTP/1.1", f"host: {self._host}"]
        if load.method == "PUT":
            lines.append(f"content-length: {load.size}")
        if self._signer is not None:
            signed = self._signer.headers(load.method, self._origin, target, {})
            lines += [f"{name}: {value}" for name, value in signed.items()]
        head = "\r\n".join([*lines, "", ""]).encode()
        self._send(head, load.size if load.method == "PUT" else 0)
        received = self._receive()
        if load.method == "GET" and received != load.size:
            raise RuntimeError(f"{target}: {received} bytes of {load.size}")

    def _send(self, head: bytes, size: int) -> None:
        if size <= BLOCK:
            self._socket.sendall(head + self._random[:size])
            return
        self._socket.sendall(head)
        while size:
            size -= len(block := self._random[: min(size, BLOCK)])
            self._socket.sendall(block)

    def _receive(self) -> int:
        """Read a response; the bytes of its body."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = self._socket.recv(MAX_HEAD)
            if not more or len(data) > MAX_HEAD:
                raise RuntimeError(f"the server has closed the connection: {data!r}")
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        if head.split(b" ", 2)[1] not in {b"200", b"201", b"204"}:
            raise RuntimeError(f"{head.decode()} {body[:1000].decode(errors='replace')}")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        left = length - len(body)
        while left:
            count = self._socket.recv_into(self._buffer[: min(left, BLOCK)])
            if not count:
                raise RuntimeError("the server has closed the connection in a body")
            left -= count
        return length


def main() -> None:
    """Run what the arguments say."""
    url, method, files, size, connections, secret = sys.argv[1:]
    load = FileLoad(url, method.upper(), int(files), int(size), int(connections), secret)
    print(run_load(load))


def run_load(load: FileLoad) -> float:
    """All requests, over all connections at once; seconds from the first to the end of the last."""
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(load.connections)
    pipes = [fork.Pipe(duplex=False) for _ in range(load.connections)]
    numbers = [range(first, load.files, load.connections) for first in range(load.connections)]
    processes = [
        fork.Process(target=_run_connection, args=(load, part, barrier, sender))
        for part, (_, sender) in zip(numbers, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    for _, sender in pipes:
        sender.close()
    spans: list[tuple[float, float]] = [receiver.recv() for receiver, _ in pipes]
    for process in processes:
        process.join()
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


def _run_connection(load: FileLoad, numbers: range, barrier: Barrier, sender: Connection) -> None:
    connection = FileConnection(load)
    barrier.wait(TIMEOUT)
    begin = time.monotonic()
    for number in numbers:
        connection.request(number)
    sender.send((begin, time.monotonic()))


if __name__ == "__main__":
    main()
