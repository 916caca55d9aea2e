"""Pulling contents from nodes that fail, lie, stall, or have something else."""

from __future__ import annotations

import errno
import http.server
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
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
from peerd.storage.transfer.node_http import NodeHttp
from peerd.storage.transfer.node_signature import NodeSigner
from peerd.storage.transfer.pull import BLOCK, Pulled, TransferControl, Wanted, pull_content, pull_many

CONTENT = os.urandom(9_000_000)
DIGEST = digest_of(CONTENT)
ID = ContentId(7)
Answer = Callable[["Handler", int], None]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the test says."""

    protocol_version = "HTTP/1.1"
    answer: Answer
    requests: list[int]

    def do_GET(self) -> None:
        begin = int(self.headers["range"].removeprefix("bytes=").rstrip("-"))
        self.requests.append(begin)
        type(self).answer(self, begin)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        type(self).answer(self, 0)

    def begin(self, start: int, *, size: int = len(CONTENT), status: int = 206) -> None:
        self.send_response(status)
        self.send_header("content-length", str(size - start))
        self.send_header("content-range", f"bytes {start}-{size - 1}/{size}")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Source:
    """A node that answers as the test says."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[int] = []
        self.release = threading.Event()
        handler = type("OneHandler", (Handler,), {"answer": answer, "requests": self.requests})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


SourceOf = Callable[[Answer], Source]


@pytest.fixture
def source() -> Iterator[SourceOf]:
    with ExitStack() as opened:

        def make(answer: Answer) -> Source:
            made = Source(answer)
            opened.callback(made.close)
            return made

        yield make


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


def whole(handler: Handler, begin: int) -> None:
    handler.begin(begin)
    handler.wfile.write(CONTENT[begin:])


def part_of(count: int) -> Answer:
    """Give so many bytes, and break off."""

    def answer(handler: Handler, begin: int) -> None:
        handler.begin(begin)
        handler.wfile.write(CONTENT[begin : begin + count])
        handler.wfile.flush()
        handler.close_connection = True
        handler.connection.close()

    return answer


def refusing(status: int) -> Answer:
    def answer(handler: Handler, _: int) -> None:
        handler.send_response(status)
        handler.send_header("content-length", "4")
        handler.send_header("location", "http://127.0.0.1:1/elsewhere")
        handler.end_headers()
        handler.wfile.write(b"no\n\n")

    return answer


def garbage(handler: Handler, _: int) -> None:
    handler.wfile.write(b"garbage\r\n\r\n")


def stored(disk: FolderDisk) -> bytes:
    with disk.open(ID) as content:
        return content.read(0, content.size)


Pull = Callable[..., Pulled]


@pytest.fixture
def pull(disk: FolderDisk, client: NodeHttp) -> Pull:
    """Pull the content from sources, or from addresses."""

    def pull(*sources: Source | str, content: ContentId = ID, control: TransferControl | None = None) -> Pulled:
        urls = [one if isinstance(one, str) else one.url for one in sources]
        return pull_content(client, disk, Wanted(content, DIGEST), urls, control or TransferControl())

    return pull


def test_a_content_is_put_together_from_what_several_sources_give(
    source: SourceOf, disk: FolderDisk, pull: Pull
) -> None:
    sources = [source(part_of(3_000_000)), source(refusing(503)), source(part_of(2_500_000))]
    pull(*sources)
    assert stored(disk) == CONTENT
    begins = sorted(begin for one in sources for begin in one.requests)
    assert begins[0] == 0
    assert len(begins) == len(set(begins)) + begins.count(0) - 1 or begins.count(0) <= 2, "nothing is read twice"


def test_a_part_of_an_earlier_try_is_resumed_or_thrown_away_if_it_is_wrong_and_no_source_is_blamed(
    source: SourceOf, disk: FolderDisk, pull: Pull
) -> None:
    for part, requests in ((CONTENT[:5_000_000], [5_000_000]), (bytes(5_000_000), [5_000_000, 0])):
        with PartFile.open(disk.folder, ID, size=len(CONTENT)) as earlier:
            earlier.write(part)
        giver = source(whole)
        assert pull(giver).bad == []
        assert (giver.requests, stored(disk) == CONTENT) == (requests, True)
        disk.remove(ID)


def test_a_source_with_a_flipped_bit_is_found_out_and_another_one_asked(
    source: SourceOf, disk: FolderDisk, pull: Pull
) -> None:
    def lie(handler: Handler, begin: int) -> None:
        handler.begin(begin)
        wrong = bytearray(CONTENT)
        wrong[5_000_000] ^= 1
        handler.wfile.write(wrong[begin:])

    liar = source(lie)
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
        "another size": (lambda handler, begin: handler.begin(begin, size=5), True),
        "garbage": (garbage, False),
        "closed": (lambda handler, _: setattr(handler, "close_connection", True), False),
    }
    for kind, (answer, is_bad) in answers.items():
        bad = source(answer)
        assert pull(bad, source(whole)).bad == ([(bad.url, ID)] if is_bad else []), kind
        assert stored(disk) == CONTENT
        disk.remove(ID)
        with pytest.raises(NoSourceLeft):
            pull(bad, "http://127.0.0.1:1", "ftp://x", content=ContentId(8))


def test_a_source_that_stalls_is_left(
    source: SourceOf, disk: FolderDisk, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_http, "READ_TIMEOUT", 0.3)
    gate = threading.Event()

    def stall(handler: Handler, begin: int) -> None:
        handler.begin(begin)
        handler.wfile.write(CONTENT[begin : begin + 3_000_000])
        handler.wfile.flush()
        gate.wait(20)

    staller, giver = source(stall), source(whole)
    try:
        pull(staller, giver)
    finally:
        gate.set()
    assert stored(disk) == CONTENT
    assert giver.requests[0] > 0


def test_a_transfer_that_is_stopped_can_be_resumed(source: SourceOf, disk: FolderDisk, pull: Pull) -> None:
    control = TransferControl()
    control.progress = lambda position: control.stop.set() if position > 4_000_000 else None
    giver = source(whole)
    with pytest.raises(TransferStopped):
        pull(giver, control=control)
    pull(giver)
    assert giver.requests[1] > 4_000_000
    assert stored(disk) == CONTENT


def test_a_write_that_fails_ends_the_pull_and_the_next_one_goes_on_behind_what_was_written(
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


def test_a_rate_is_kept(source: SourceOf, pull: Pull) -> None:
    began = time.monotonic()
    pull(source(whole), control=TransferControl(bytes_per_second=9_000_000))
    assert time.monotonic() - began > 0.85


def test_what_is_there_already_is_verified_before_it_is_believed(
    source: SourceOf, disk: FolderDisk, pull: Pull
) -> None:
    giver = source(whole)
    pull(giver)
    pull(giver)
    assert giver.requests == [0], "it was there"
    path = next(disk.folder.path.glob(f"contents/*/*/{ID}"))
    path.write_bytes(b"x" + CONTENT[1:])
    pull(giver)
    assert stored(disk) == CONTENT
    assert len(list((disk.folder.path / "quarantine").iterdir())) == 1


SMALL = {ContentId(number): os.urandom(number * 100) for number in range(1, 6)}


def many(frames: list[bytes], *, length: int | None = None) -> Answer:
    def answer(handler: Handler, _: int) -> None:
        body = b"".join(frames)
        handler.send_response(200)
        handler.send_header("content-length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = length is not None

    return answer


def frame(content: ContentId, data: bytes | None) -> bytes:
    return encode_head(content.number, None if data is None else len(data)) + (data or b"")


def wanted_small() -> list[Wanted]:
    return [Wanted(content, digest_of(data)) for content, data in SMALL.items()]


def test_many_small_contents_come_in_one_response_and_wrong_ones_are_left_out(
    source: SourceOf, disk: FolderDisk, client: NodeHttp
) -> None:
    given = {**SMALL, ContentId(2): None, ContentId(4): b"other"}
    giver = source(many([frame(content, data) for content, data in given.items()]))
    pulled = pull_many(client, disk, wanted_small(), giver.url, TransferControl())
    assert sorted(pulled.stored) == [ContentId(number) for number in (1, 3, 5)]
    assert pulled.bad == [(giver.url, ContentId(2)), (giver.url, ContentId(4))]
    assert set(pulled.failed) == {ContentId(2), ContentId(4)}
    assert walked(disk) == [1, 3, 5]


def walked(disk: FolderDisk) -> list[int]:
    return [one.content.number for batch in disk.walk(batch=1000) for one in batch]


def test_of_a_response_that_is_wrong_what_came_before_is_stored(
    source: SourceOf, disk: FolderDisk, client: NodeHttp
) -> None:
    frames = [frame(content, data) for content, data in SMALL.items()]
    table: list[tuple[Answer, list[int]]] = [
        (refusing(403), []),
        (many([*frames[:2], frames[2][:-5]], length=5000), [1, 2]),
        (many([frames[0], frames[1], frames[4], frames[2]]), [1, 2]),
        (many([frames[0], frames[1], b"\xff" * 100]), [1, 2]),
    ]
    for answer, expected in table:
        with pytest.raises(SourceFailed):
            pull_many(client, disk, wanted_small(), source(answer).url, TransferControl())
        assert walked(disk) == expected
        for number in expected:
            disk.remove(ContentId(number))


def in_chunks(frames: list[bytes], size: int) -> Answer:
    """As a node sends them: in chunks of the transfer encoding."""

    def answer(handler: Handler, _: int) -> None:
        body = b"".join(frames)
        handler.send_response(200)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for first in range(0, len(body), size):
            data = body[first : first + size]
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        handler.wfile.write(b"0\r\n\r\n")

    return answer


def test_a_response_in_chunks_of_any_size_is_read_and_its_connection_used_again(
    source: SourceOf, disk: FolderDisk, client: NodeHttp
) -> None:
    for tries, size in enumerate((1, 24, 29, 10_000), 1):
        giver = source(in_chunks([frame(content, data) for content, data in SMALL.items()], size))
        pulled = pull_many(client, disk, wanted_small(), giver.url, TransferControl())
        assert (sorted(pulled.stored), pulled.failed, pulled.bad) == (sorted(SMALL), {}, [])
        assert [len(idle) for idle in client._idle.values()] == [1] * tries
        for content in SMALL:
            disk.remove(content)


def test_small_contents_that_are_there_are_verified_and_those_in_use_left(
    source: SourceOf, disk: FolderDisk, client: NodeHttp
) -> None:
    with disk.begin_small() as small:
        for number in (1, 2):
            data = SMALL[ContentId(number)]
            small.write(ContentId(number), data, digest_of(data))
        small.publish()
    next(disk.folder.path.glob(f"contents/*/*/{ContentId(2)}")).write_bytes(b"damaged")
    with PartFile.open(disk.folder, ContentId(3)) as other:
        other.write(b"by another task")
        giver = source(many([frame(content, data) for content, data in SMALL.items()]))
        pulled = pull_many(client, disk, wanted_small(), giver.url, TransferControl())
    assert sorted(pulled.stored) == [ContentId(number) for number in (1, 4, 5)]
    assert set(pulled.failed) == {ContentId(2), ContentId(3)}
    assert pulled.bad == []
    assert [name.split(".")[0] for name in disk.quarantined()] == [str(ContentId(2))]


def test_a_head_of_a_frame_is_checked() -> None:
    of_missing = encode_head(1, None)[:16] + b"\x00" * 7 + b"\x01"
    for data in (b"", b"x" * 23, b"\xff" * 24, encode_head(1, 2**40), of_missing):
        with pytest.raises(InvalidFrame):
            decode_head(data)
