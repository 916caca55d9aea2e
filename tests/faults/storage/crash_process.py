"""A process that forks one for each crash: it does an operation of a node with storage, and is killed at a phase.

It has no thread and no connection, so that forks of it are safe, and imports everything once. Requests and answers are
lines of JSON on its pipes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from blake3 import blake3

from peerd.storage.auditing import UNNAMED, FileAuditor
from peerd.storage.duties import Duties
from peerd.storage.node import StorageNode, StorageOptions
from peerd.storage.receiving import Received, Receiving
from peerd.storage.resumable import PartOfUpload, begin_upload, complete
from peerd.store.connection.database import Database
from peerd.store.files.buckets import get_bucket
from peerd.store.files.uploads import uploads_of_key
from tests.faults.storage.broken_storage import VARIANTS
from tests.storage.nodes import SECRET, NoRings, ServedNode, carry_out

EVERY_PHASE: Final = -1
"""In the place of a phase: none is killed at, and all are reported."""


class CrashRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a node, and the phase at which it is killed.

    Attributes:
        url: of the database.
        node: its name.
        options: of its storage.
        operation: of `OPERATIONS`.
        phase: the number of the call of the marker.
        arguments: of the operation.
        broken: the variant of the product, or the empty text.
    """

    url: str
    node: str
    options: dict[str, Any]
    operation: str
    phase: int
    arguments: dict[str, Any]
    broken: str = ""


class CrashAnswer(msgspec.Struct, frozen=True):
    """How it ended: the phases that were reached, and the signal."""

    phases: list[str]
    killed: bool
    error: str = ""


class CrashProcess:
    """The process, as tests use it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def run(
        self, node: ServedNode, operation: str, phase: int, *, broken: str = "", **arguments: Any
    ) -> CrashAnswer:  # fmt: skip
        """Do an operation in the place of a node, in a process that is killed at a phase."""
        request = CrashRequest(
            url=node.node.database.url.render_as_string(hide_password=False),
            node=node.name,
            options=msgspec.to_builtins(node.node.options),
            operation=operation,
            phase=phase,
            arguments=arguments,
            broken=broken,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        answer = msgspec.json.decode(line, type=CrashAnswer)
        assert not answer.error, answer.error
        return answer


@contextmanager
def crash_process() -> Iterator[CrashProcess]:
    """Start it, and end it."""
    command = [sys.executable, "-m", __name__]
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root / "src"), str(root)])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        try:
            yield CrashProcess(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def bytes_of(seed: str, size: int) -> bytes:
    """The content of a file, by its name."""
    return random.Random(seed).randbytes(size)


# ------------------------------------------------------------ in the process


def put(node: StorageNode, *, key: str, seed: str, size: int) -> None:
    """As the server does it."""
    content = bytes_of(seed, size)
    with Receiving.begin(node, len(content)) as receiving:
        receiving.write(content)
        carry_out(node, receiving.finish(Received(bucket="films", key=key)))


def put_in_parts(node: StorageNode, *, key: str, seed: str, size: int) -> None:
    """As the server does it, from where an earlier process was killed."""
    content = bytes_of(seed, size)
    bucket = node.database.read(get_bucket, "films")
    found = node.database.read(uploads_of_key, bucket, key)
    upload = found[0] if found else begin_upload(node, Received(bucket="films", key=key), size, None)
    position = upload.received
    while position < size:
        part = content[position : position + size // 3 + 1]
        receiving = PartOfUpload.begin(node, upload.id, position, len(part))
        receiving.write(part + blake3(part).digest())
        position = receiving.finish()
        receiving.close()
    carry_out(node, complete(node, upload.id, size, blake3(content).hexdigest(), FileAuditor(actor=UNNAMED)))


def copy(node: StorageNode, *, disk: int, files: list[str]) -> None:
    Duties(node).copy(disk, files, threading.Event(), lambda *_: None)


def remove(node: StorageNode, *, disk: int, files: list[str]) -> None:
    Duties(node).remove(disk, files)


def verify(node: StorageNode, *, disk: int, files: list[str]) -> None:
    Duties(node).verify(disk, files, threading.Event(), lambda *_: None)


OPERATIONS: Final[Mapping[str, Callable[..., None]]] = {
    "put": put,
    "put in parts": put_in_parts,
    "copy": copy,
    "remove": remove,
    "verify": verify,
}


def _operate(request: CrashRequest, report: int) -> None:
    """Do it; each phase is reported before the process is killed there."""
    if request.broken:
        VARIANTS[request.broken](setattr)
    number = 0

    def mark(phase: str) -> None:
        nonlocal number
        os.write(report, json.dumps(phase).encode() + b"\n")
        if number == request.phase:
            os.kill(os.getpid(), signal.SIGKILL)
        number += 1

    options = msgspec.convert(request.options, StorageOptions)
    node = StorageNode(Database(request.url), request.node, options, Path("/"), SECRET, NoRings(), at=mark)
    node.disks.refresh()
    OPERATIONS[request.operation](node, **request.arguments)


def _fork(request: CrashRequest) -> CrashAnswer:
    received, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(received)
            _operate(request, report)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - the caller judges it
            os.write(report, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n")
            os._exit(1)
    os.close(report)
    with os.fdopen(received, "rb") as lines:
        said = [json.loads(line) for line in lines]
    status = os.waitpid(pid, 0)[1]
    errors = [one["error"] for one in said if isinstance(one, dict)]
    phases = [one for one in said if isinstance(one, str)]
    return CrashAnswer(phases, os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, " ".join(errors))


def main() -> None:
    """Answer requests until the pipe is closed."""
    for line in sys.stdin.buffer:
        answer = _fork(msgspec.json.decode(line, type=CrashRequest))
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
