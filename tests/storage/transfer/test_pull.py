"""Pulling contents from nodes that fail, lie, stall, or have something else."""

from __future__ import annotations

import errno
import http.server
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import digest_of
from peerd.storage.disk.errors import DiskFailed
from peerd.storage.disk.folder import DiskFolder
from peerd.storage.disk.folder_disk import FolderDisk
from peerd.storage.disk.identity import create_disk
from peerd.storage.disk.part_file import PartFile
from peerd.storage.transfer import node_http
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed, TransferStopped
from peerd.storage.transfer.frames import InvalidFrame, decode_head, encode_head
from peerd.storage.transfer.node_http import NodeHttp, read_body
from peerd.storage.transfer.node_signature import NodeSigner
from peerd.storage.transfer.pull import BLOCK, Pulled, TransferControl, Wanted, pull_content, pull_many
from peerd.testing import eventually
from tests.support.hostile_server import answering

CONTENT = os.urandom(9_000_000)
DIGEST = digest_of(CONTENT)
ID = ContentId(7)
SMALL = {ContentId(number): os.urandom(number * 100) for number in range(1, 6)}
Answer = Callable[[int], bytes]
"""What is sent to a request for the bytes from a place on."""


@dataclass
class Source:
    """A node that answers as the test says, and the places from which it was asked."""

    url: str
    requests: list[int]


SourceOf = Callable[..., Source]


@pytest.fixture
def source() -> Iterator[SourceOf]:
    with ExitStack() as opened:

        def make(answer: Answer, *, closes: bool = True) -> Source:
            requests: list[int] = []

            class Handler(http.server.BaseHTTPRequestHandler):
                protocol_version = "HTTP/1.1"

                def do_GET(self) -> None:
                    self.rfile.read(int(self.headers.get("content-length", 0)))
                    requests.append(int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-")))
                    self.wfile.write(answer(requests[-1]))
                    self.close_connection = closes

                do_POST = do_GET  # noqa: N815 - as http.server calls it

                def log_message(self, *_: object) -> None:
                    """Print nothing."""

            server = opened.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            opened.callback(thread.join)
            opened.callback(server.shutdown)
            return Source(f"http://127.0.0.1:{server.server_address[1]}", requests)

        yield make


def response(status: int, body: bytes, **headers: object) -> bytes:
    headers = headers if "transfer_encoding" in headers else {"content_length": len(body), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} status\r\n{lines}\r\n".encode() + body


def whole(begin: int, content: bytes = CONTENT, size: int = len(CONTENT)) -> bytes:
    place = f"bytes {begin}-{size - 1}/{size}"
    return response(206, content[begin:], content_length=size - begin, content_range=place)


def part_of(count: int) -> Answer:
    """Give so many bytes, and break off."""
    return lambda begin: whole(begin, CONTENT[: begin + count])


def refusing(status: int) -> Answer:
    return lambda _: response(status, b"no\n\n", location="http://127.0.0.1:1/elsewhere")


def many(frames: list[bytes], **headers: object) -> Answer:
    return lambda _: response(200, b"".join(frames), **headers)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FolderDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    with DiskFolder.open(path, create_disk(path, "0" * 32)) as opened:
        yield FolderDisk(opened)


@pytest.fixture
def client() -> Iterator[NodeHttp]:
    http = NodeHttp(NodeSigner("the secret", time.time))
    yield http
    http.close()


def frame(content: ContentId, data: bytes | None) -> bytes:
    return encode_head(content.number, None if data is None else len(data)) + (data or b"")


def frames_of(contents: Mapping[ContentId, bytes | None]) -> list[bytes]:
    return [frame(content, data) for content, data in contents.items()]


def stored(disk: FolderDisk) -> bytes:
    with disk.open(ID) as content:
        return content.read(0, content.size)


def walked(disk: FolderDisk) -> list[int]:
    return [one.content.number for batch in disk.walk(batch=1000) for one in batch]


Pull = Callable[..., Pulled]


@pytest.fixture
def pull(disk: FolderDisk, client: NodeHttp) -> Pull:
    """Pull the content from sources, or from addresses."""

    def pull(*sources: Source | str, content: ContentId = ID, control: TransferControl | None = None) -> Pulled:
        urls = [one if isinstance(one, str) else one.url for one in sources]
        return pull_content(client, disk, Wanted(content, DIGEST), urls, control or TransferControl())

    return pull


def test_a_content_is_put_together_from_several_sources(source: SourceOf, disk: FolderDisk, pull: Pull) -> None:
    sources = [source(part_of(3_000_000)), source(refusing(503)), source(part_of(2_500_000))]
    pull(*sources)
    assert stored(disk) == CONTENT
    again = [3_000_000, 8_500_000]
    assert [one.requests for one in sources] == [[0, 5_500_000], again, again], "nothing is read twice"


def test_a_part_of_an_earlier_try_is_resumed_if_it_is_right(source: SourceOf, disk: FolderDisk, pull: Pull) -> None:
    for part, requests in ((CONTENT[:5_000_000], [5_000_000]), (bytes(5_000_000), [5_000_000, 0])):
        with PartFile.open(disk.folder, ID, size=len(CONTENT)) as earlier:
            earlier.write(part)
        giver = source(whole)
        assert pull(giver).bad == []
        assert (giver.requests, stored(disk) == CONTENT) == (requests, True)
        disk.remove(ID)
    control = TransferControl(bytes_per_second=9_000_000)
    control.progress = lambda position: control.stop.set() if position > 4_000_000 else None
    giver, began = source(whole), time.monotonic()
    with pytest.raises(TransferStopped):
        pull(giver, control=control)
    assert time.monotonic() - began > 0.3, "the rate is kept"
    pull(giver)
    assert giver.requests[1] > 4_000_000
    assert stored(disk) == CONTENT


def test_a_source_with_a_flipped_bit_is_found_out(source: SourceOf, disk: FolderDisk, pull: Pull) -> None:
    wrong = CONTENT[:5_000_000] + bytes([CONTENT[5_000_000] ^ 1]) + CONTENT[5_000_001:]
    liar = source(lambda begin: whole(begin, wrong))
    assert pull(liar, source(whole)).bad == [(liar.url, ID)]
    assert stored(disk) == CONTENT
    with pytest.raises(NoSourceLeft, match=r"content 0000000000000008 cannot be read.*damaged"):
        pull(liar, content=ContentId(8))
    assert list(disk.folder.old_parts(time.time() + 100)) == [], "nothing wrong is left to be resumed"


def test_a_source_without_the_content_is_left(source: SourceOf, disk: FolderDisk, pull: Pull) -> None:
    answers: dict[str, tuple[Answer, bool]] = {
        "missing": (refusing(404), True),
        "redirect": (refusing(302), False),
        "error": (refusing(500), False),
        "no range": (refusing(200), True),
        "another size": (lambda begin: whole(begin, b"", size=5), True),
        "garbage": (lambda _: b"garbage\r\n\r\n", False),
        "closed": (lambda _: b"", False),
    }
    for kind, (answer, is_bad) in answers.items():
        bad = source(answer)
        assert pull(bad, source(whole)).bad == ([(bad.url, ID)] if is_bad else []), kind
        assert stored(disk) == CONTENT
        disk.remove(ID)
        with pytest.raises(NoSourceLeft):
            pull(bad, "http://127.0.0.1:1", "ftp://x", content=ContentId(8))


def test_a_stalling_source_is_left(
    source: SourceOf, disk: FolderDisk, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_http, "READ_TIMEOUT", 0.3)
    giver = source(whole)
    pull(source(part_of(3_000_000), closes=False), giver)
    assert stored(disk) == CONTENT
    assert giver.requests[0] > 0


def test_after_a_write_that_failed_a_pull_goes_on(
    source: SourceOf, disk: FolderDisk, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def fail_behind_4_mebibytes(fd: int, data: bytes, position: int) -> int:
        if position >= 4 * 1024 * 1024:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pwrite(fd, data, position)

    giver = source(whole)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail_behind_4_mebibytes)
        with pytest.raises(DiskFailed):
            pull(giver)
    pull(giver)
    assert giver.requests[0] == 0
    assert 3 * 1024 * 1024 < giver.requests[1] <= 4 * 1024 * 1024 + BLOCK
    assert stored(disk) == CONTENT


def test_what_is_there_is_verified_before_it_is_believed(source: SourceOf, disk: FolderDisk, pull: Pull) -> None:
    giver = source(whole)
    pull(giver)
    pull(giver)
    assert giver.requests == [0], "it was there"
    path = next(disk.folder.path.glob(f"contents/*/*/{ID}"))
    path.write_bytes(bytes([CONTENT[0] ^ 1]) + CONTENT[1:])
    pull(giver)
    assert stored(disk) == CONTENT
    assert len(list((disk.folder.path / "quarantine").iterdir())) == 1


WANTED = [Wanted(content, digest_of(data)) for content, data in SMALL.items()]
PullSmall = Callable[[Source], Pulled]


@pytest.fixture
def pull_small(disk: FolderDisk, client: NodeHttp) -> PullSmall:
    return lambda source: pull_many(client, disk, WANTED, source.url, TransferControl())


def test_of_many_small_contents_wrong_ones_are_left_out(
    source: SourceOf, disk: FolderDisk, pull_small: PullSmall
) -> None:
    given = {**SMALL, ContentId(2): None, ContentId(4): b"other"}
    giver = source(many(frames_of(given)))
    pulled = pull_small(giver)
    assert sorted(pulled.stored) == [ContentId(number) for number in (1, 3, 5)]
    assert pulled.bad == [(giver.url, ContentId(2)), (giver.url, ContentId(4))]
    assert set(pulled.failed) == {ContentId(2), ContentId(4)}
    assert walked(disk) == [1, 3, 5]


def test_of_a_wrong_response_what_came_before_is_stored(
    source: SourceOf, disk: FolderDisk, pull_small: PullSmall
) -> None:
    frames = frames_of(SMALL)
    table: list[tuple[Answer, list[int]]] = [
        (refusing(403), []),
        (many([*frames[:2], frames[2][:-5]], content_length=5000), [1, 2]),
        (many([frames[0], frames[1], frames[4], frames[2]]), [1, 2]),
        (many([frames[0], frames[1], b"\xff" * 100]), [1, 2]),
    ]
    for answer, expected in table:
        with pytest.raises(SourceFailed):
            pull_small(source(answer))
        assert walked(disk) == expected
        for number in expected:
            disk.remove(ContentId(number))


def test_after_a_response_in_chunks_its_connection_is_used_again(
    source: SourceOf, disk: FolderDisk, client: NodeHttp, pull_small: PullSmall
) -> None:
    body = b"".join(frames_of(SMALL))
    for tries, size in enumerate((1, 24, 29, 10_000), 1):
        pieces = [*(body[first : first + size] for first in range(0, len(body), size)), b""]
        chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        pulled = pull_small(source(many(chunks, transfer_encoding="chunked"), closes=False))
        assert (sorted(pulled.stored), pulled.failed, pulled.bad) == (sorted(SMALL), {}, [])
        assert [len(idle) for idle in client._idle.values()] == [1] * tries
        for content in SMALL:
            disk.remove(content)


def test_a_connection_that_was_idle_for_long_or_has_ended_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that closes idle connections would else get requests on them that must not be repeated."""
    client = NodeHttp(NodeSigner("the secret", time.time))
    monkeypatch.setattr(client, "resends", False)
    sent = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    with answering(sent) as url:
        for _ in range(3):
            with client.request("GET", url, "/") as response:
                assert response.read() == b"ok"
            [(idle, _)] = client._idle[url]
            eventually(partial(node_http._is_readable, idle.sock, 0.0))
        monkeypatch.setattr(node_http, "KEPT_FOR", -1.0)
        with client.request("GET", url, "/") as response:
            response.read()
        assert len(client._idle[url]) == 1, "what is too old is closed by the next that returns"
    client.close()


def test_small_contents_that_are_there_are_verified(source: SourceOf, disk: FolderDisk, pull_small: PullSmall) -> None:
    with disk.begin_small() as small:
        for number in (1, 2):
            data = SMALL[ContentId(number)]
            small.write(ContentId(number), data, digest_of(data))
        small.publish()
    next(disk.folder.path.glob(f"contents/*/*/{ContentId(2)}")).write_bytes(b"damaged")
    with PartFile.open(disk.folder, ContentId(3)) as other:
        other.write(b"by another task")
        giver = source(many(frames_of(SMALL)))
        pulled = pull_small(giver)
    assert sorted(pulled.stored) == [ContentId(number) for number in (1, 4, 5)]
    assert set(pulled.failed) == {ContentId(2), ContentId(3)}
    assert pulled.bad == []
    assert [name.split(".")[0] for name in disk.quarantined()] == [str(ContentId(2))]


def test_a_head_of_a_frame_is_checked() -> None:
    of_missing = encode_head(1, None)[:16] + b"\x00" * 7 + b"\x01"
    for data in (b"", b"x" * 23, b"\xff" * 24, encode_head(1, 2**40), of_missing):
        with pytest.raises(InvalidFrame):
            decode_head(data)


def test_a_short_answer_without_its_end_is_none() -> None:
    """What a node says of a put or of an upload is not taken for its answer when the connection ends within it."""
    for body in (b"", b"{}"):
        sent = b"HTTP/1.1 201 Created\r\ncontent-length: 9\r\n\r\n" + body
        http_client = NodeHttp(NodeSigner("the secret", time.time))
        with answering(sent) as url:
            for sending in (http_client.request("GET", url, "/"), http_client.upload(url, "/", [b"x"], {})):
                with pytest.raises(SourceFailed, match="ended within the response"), sending as response:
                    read_body(response, 100)
