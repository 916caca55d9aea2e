"""What a copy costs at least: bytes over a connection of this machine into files that are durable, nothing else.

One process sends files by ``sendfile``, another receives, writes and syncs them: no verification, no catalogue, no name
that appears only when all bytes are there. A large file is fsynced; small ones are made durable by one ``syncfs``.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from blake3 import blake3

BLOCK: Final = 1024 * 1024
TIMEOUT: Final = 300.0
_libc: Final = ctypes.CDLL(None, use_errno=True)


def copy_bare(source: Path, target: Path) -> float:
    """Copy the files below a folder, durably; seconds from the first byte on.

    Args:
        source: what is copied.
        target: an empty folder; the files get the numbers of their order.
    """
    files = sorted(path for path in source.rglob("*") if path.is_file())
    listening = socket.create_server(("127.0.0.1", 0))
    sender = multiprocessing.get_context("fork").Process(target=_send, args=(listening.getsockname(), files))
    sender.start()
    connection, _ = listening.accept()
    with listening, connection:
        connection.settimeout(TIMEOUT)
        began = time.monotonic()
        _receive(connection, [path.stat().st_size for path in files], target)
        seconds = time.monotonic() - began
    sender.join()
    return seconds


def hash_rate(size: int = 256 * BLOCK) -> float:
    """Bytes of one thread in a second that are hashed by BLAKE3: what a verification costs at least."""
    block, hasher = os.urandom(BLOCK), blake3()
    began = time.thread_time()
    for _ in range(size // BLOCK):
        hasher.update(block)
    return size / (time.thread_time() - began)


def _send(address: tuple[str, int], files: Sequence[Path]) -> None:
    with socket.create_connection(address, TIMEOUT) as connection:
        for path in files:
            with path.open("rb") as opened:
                connection.sendfile(opened)


def _receive(connection: socket.socket, sizes: Sequence[int], target: Path) -> None:
    buffer = memoryview(bytearray(BLOCK))
    for number, size in enumerate(sizes):
        fd = os.open(target / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            left = size
            while left:
                count = connection.recv_into(buffer[: min(left, BLOCK)])
                if not count:
                    raise RuntimeError("the sender has ended too early")
                os.write(fd, buffer[:count])
                left -= count
            if len(sizes) == 1:
                os.fsync(fd)
        finally:
            os.close(fd)
    folder = os.open(target, os.O_RDONLY)
    try:
        if _libc.syncfs(folder):
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(folder)
