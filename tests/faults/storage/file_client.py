"""Clients of files: each changes keys of its own, reads those of all, through any node, and records what it saw."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import msgspec
from blake3 import blake3

from peerd.storage.transfer.node_signature import NodeSigner
from tests.faults.storage.file_record import ABSENT, FileRecord, SeenRead, UnknownMove
from tests.faults.storage.storage_fleet import BUCKET, SECRET, ClientAddress

TIMEOUT: Final = 20.0
KEYS: Final = 4
"""Of one client at a time; a key whose state is not known is replaced by a new one."""
UNANSWERED: Final = (OSError, http.client.HTTPException)
REFUSALS: Final = frozenset({
    "NoDiskHasRoom", "DiskOutOfSpace", "DiskReadOnly", "DiskFailed", "TooFewDurable", "NoSourceLeft", "FileMissing",
    "NodeSignatureRefused",
})  # fmt: skip
"""Codes of errors that say that nothing was done."""


class Answer(msgspec.Struct, frozen=True):
    """A whole answer; status 0: no request was sent, -1: nothing is known."""

    status: int
    body: bytes = b""

    @property
    def has_done_nothing(self) -> bool:
        """Whether the answer says that a change was not made."""
        if self.status in {0, 507} or 400 <= self.status < 500:
            return True
        return self.status >= 500 and self.code in REFUSALS

    @property
    def code(self) -> str:
        try:
            return str(json.loads(self.body)["code"])
        except (ValueError, KeyError, TypeError):
            return ""


class FileRequests:
    """Requests to nodes, with the signature of a node; thread-safe."""

    def __init__(self) -> None:
        self._signer = NodeSigner(SECRET, time.time)

    def send(self, node: ClientAddress, method: str, target: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send a request, and read all of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=TIMEOUT)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.connect()
        except OSError:
            return Answer(0)
        try:
            signed = self._signer.headers(method, node.url, target, names)
            connection.request(method, target, body, {**names, **signed})
            response = connection.getresponse()
            return Answer(response.status, response.read())
        except UNANSWERED:
            return Answer(-1)
        finally:
            connection.close()


class FileClient:
    """One client, in a thread.

    Args:
        name: the beginning of its keys.
        nodes: their addresses, by name.
        record: of all clients.
        rng: its own.
        stopping: ends it.
        every: seconds from one request to the next, about.
    """

    def __init__(
        self, name: str, nodes: dict[str, ClientAddress], record: FileRecord, rng: random.Random,
        stopping: threading.Event, *, every: float = 0.6,
    ) -> None:  # fmt: skip
        self.error: BaseException | None = None
        self._name = name
        self._nodes = nodes
        self._record = record
        self._rng = rng
        self._stopping = stopping
        self._every = every
        self._requests = FileRequests()
        self._keys: list[str] = []
        self._made = 0
        self._thread = threading.Thread(target=self._run, name=f"client-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._rng.uniform(0.0, 2.0) * self._every):
                self._step()
        except BaseException as error:  # noqa: BLE001 - a client that fails must not look like files that are kept
            self.error = error

    def _step(self) -> None:
        self._replace_unknown_keys()
        step = self._rng.choices([self._put, self._get, self._delete, self._move], [40, 40, 8, 8])[0]
        step(self._rng.choice(list(self._nodes)))

    def _replace_unknown_keys(self) -> None:
        self._keys = [key for key in self._keys if not self._record.is_unknown(key)]
        while len(self._keys) < KEYS:
            self._made += 1
            self._keys.append(f"{self._name}/{self._made:04} ä")

    def _put(self, node: str) -> None:
        key, content = self._rng.choice(self._keys), self._content()
        digest = blake3(content).hexdigest()
        wanted = self._rng.choice(["default", "safe", "wide"])
        announced = {"x_peerd_blake3": digest} if self._rng.random() < 0.5 else {}
        self._record.began({key: digest}, time.monotonic())
        answer = self._requests.send(
            self._nodes[node], "PUT", target_of(key), content, x_peerd_class=wanted, **announced
        )
        if self._judge("put", answer, [key], 201):
            self._record.ids.add(f"{int(json.loads(answer.body)['id']):016x}")

    def _delete(self, node: str) -> None:
        key = self._rng.choice(self._keys)
        self._record.began({key: ABSENT}, time.monotonic())
        self._judge("delete", self._requests.send(self._nodes[node], "DELETE", target_of(key)), [key], 204)

    def _move(self, node: str) -> None:
        source, target = self._rng.sample(self._keys, 2)
        digest = self._record.current(source)
        if digest == ABSENT:
            return
        self._record.began({source: ABSENT, target: digest}, time.monotonic())
        answer = self._requests.send(self._nodes[node], "POST", f"{target_of(source)}?to={target_of(target)[7:]}")
        self._judge("move", answer, [source, target], 200, UnknownMove(source, target, digest))

    def _judge(
        self, name: str, answer: Answer, keys: Sequence[str], done: int, move: UnknownMove | None = None
    ) -> bool:
        if answer.status == done:
            self._record.acknowledged(keys, time.monotonic())
            self._record.count(f"{name}: acknowledged")
            return True
        if answer.has_done_nothing:
            self._record.refused(keys)
            self._record.count(f"{name}: refused {answer.status or 'connection'} {answer.code}")
        else:
            self._record.unknown(keys, move)
            self._record.count(f"{name}: unknown {answer.status} {answer.code}")
        return False

    def _get(self, node: str) -> None:
        key = self._rng.choice(self._record.all_keys() or self._keys)
        began = time.monotonic()
        answer = self._requests.send(self._nodes[node], "GET", target_of(key))
        self._record.count(f"get: {answer.status} {answer.code}")
        if answer.status in {200, 404}:
            digest = blake3(answer.body).hexdigest() if answer.status == 200 else ABSENT
            self._record.read(SeenRead(key, node, digest, began, time.monotonic()))

    def _content(self) -> bytes:
        low, high = self._rng.choices([(0, 0), (1, 5_000), (50_000, 200_000), (1_000_000, 5_000_000)], [1, 5, 3, 2])[0]
        return self._rng.randbytes(self._rng.randint(low, high))


def target_of(key: str) -> str:
    """The path of a key in requests."""
    return f"/files/{BUCKET}/{quote(key)}"
