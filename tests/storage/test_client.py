"""Putting and getting contents with a client, over real servers: whole or not at all, whichever node fails."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd import Actor, Client, NotPermitted
from peerd.domain.file_errors import (
    BucketNotFound,
    ContentDiffers,
    FileClassNotFound,
    FileConditionFailed,
    FileMissing,
    FileReplaced,
    InvalidFile,
    NoClusterSecret,
    NoNodeTakes,
    QuotaExceeded,
)
from peerd.storage.put_options import PutOptions
from peerd.storage.transfer.errors import NoSourceLeft
from peerd.store.schema.tables import disks
from tests.storage.nodes import SECRET, StorageCluster
from tests.store.file_steps import GIGABYTE


@pytest.fixture(autouse=True)
def _kept_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes do not report their addresses again: tests change them."""
    monkeypatch.setattr("peerd.storage.server.app.REFRESH_EVERY", 3_600.0)


@pytest.fixture
def client(cluster: StorageCluster) -> Iterator[Client]:
    cluster.catalogue.bucket()
    cluster.refresh()
    with Client(cluster.catalogue.store, secret=SECRET) as client:
        yield client


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A file of three chunks."""
    path = tmp_path / "film.mov"
    path.write_bytes(os.urandom(9_000_000))
    return path


class BreakingServer:
    """Accepts connections, and ends each after some bytes of the response that another server gives.

    Args:
        url: of the other server.
        after: bytes of a response that are sent.
        responses: how many are sent so; later connections end at once.
        damages: change a byte behind each 100 kB.
    """

    def __init__(self, url: str, after: int, *, responses: int = 1_000, damages: bool = False) -> None:
        self._responses, self._damages = responses, damages
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port, self._after = int(port), after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.broken = 0
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            with accepted, socket.create_connection((self._host, self._port)) as other:
                other.sendall(accepted.recv(65536))
                left = self._after if self.broken < self._responses else 0
                while left and (data := bytearray(other.recv(min(left, 100_000)))):
                    if self._damages and left < self._after:
                        data[-1] ^= 1
                    accepted.sendall(data)
                    left -= len(data)
                self.broken += 1

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def serve_at(cluster: StorageCluster, node: str, url: str) -> None:
    """Let the catalogue name another address of a node."""
    cluster.catalogue.change(disks, disks.c.id == cluster.nodes[node].disk, url=url)


def test_a_file_is_put_and_got_whole(client: Client, cluster: StorageCluster, film: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    put = client.files.put(
        film,
        "films/2026/größe 1.mov",
        content_type="video/quicktime",
        metadata={"camera": "ü 7"},
        progress=lambda done, size: seen.append((done, size)),
    )
    assert (put.key, put.version, put.size) == ("2026/größe 1.mov", 1, 9_000_000)
    assert (put.content_type, put.metadata) == ("video/quicktime", {"camera": "ü 7"})
    assert seen[-1] == (9_000_000, 9_000_000)
    assert len(seen) > 5
    cluster.run_tasks()
    got = client.files.get("films/2026/größe 1.mov", tmp_path / "got")
    assert got == client.files.stat("films/2026/größe 1.mov").file
    assert (tmp_path / "got").read_bytes() == film.read_bytes()
    (tmp_path / "folder").mkdir()
    client.files.get("films/2026/größe 1.mov", tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["größe 1.mov"]
    assert client.files.stat("films/2026/größe 1.mov").health == "whole"


def test_streams_of_unknown_size_and_empty_files(client: Client) -> None:
    content = os.urandom(3_000_000)
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as opened:
            opened.write(content[:1_000_000])

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading, "rb") as pipe:
        assert client.files.put(pipe, "films/pipe").size == 1_000_000
    writer.join()
    assert client.files.put(io.BytesIO(content), "films/stream").size == 3_000_000
    assert client.files.put(io.BytesIO(), "films/empty").size == 0
    for key, wanted in (("stream", content), ("empty", b"")):
        target = io.BytesIO()
        client.files.get(f"films/{key}", target)
        assert target.getvalue() == wanted


def test_a_file_is_read_from_where_it_was_sought(client: Client, film: Path) -> None:
    content = film.read_bytes()
    client.files.put(film, "films/f")
    with client.files.open("films/f") as opened:
        assert opened.read(10) == content[:10]
        opened.seek(-7, os.SEEK_END)
        assert opened.read() == content[-7:]
        opened.seek(5_000_000)
        assert opened.read(100) == content[5_000_000:5_000_100]
        opened.seek(0)
        assert opened.read() == content


def test_the_awaited_client_does_the_same(client: Client, film: Path, tmp_path: Path) -> None:
    async def both() -> None:
        await client.aio.files.put(film, "films/f")
        await client.aio.files.get("films/f", tmp_path / "got")

    asyncio.run(both())
    assert (tmp_path / "got").read_bytes() == film.read_bytes()


def test_a_get_goes_on_at_another_node_where_one_has_broken_off(
    client: Client, cluster: StorageCluster, film: Path, tmp_path: Path
) -> None:
    put = client.files.put(film, "films/f")
    cluster.run_tasks()
    [holder, other] = [node for node in cluster.nodes.values() if node.contents()]
    breaking = BreakingServer(holder.url, 6_000_000)
    try:
        serve_at(cluster, holder.name, breaking.url)
        while not breaking.broken:  # which of the two is asked first is random
            assert client.files.get("films/f", tmp_path / "got") == put
            assert (tmp_path / "got").read_bytes() == film.read_bytes()
        assert other.contents() == holder.contents()
    finally:
        breaking.close()


def test_a_get_that_fails_leaves_what_was_there(
    client: Client, cluster: StorageCluster, film: Path, tmp_path: Path
) -> None:
    client.files.put(film, "films/f")
    (tmp_path / "got").write_text("before")
    breaking = BreakingServer(
        next(node.url for node in cluster.nodes.values() if node.contents()), 6_000_000, responses=1
    )
    try:
        for name in cluster.nodes:
            serve_at(cluster, name, breaking.url)
        with pytest.raises(NoSourceLeft, match="connection ended at byte"):
            client.files.get("films/f", tmp_path / "got")
    finally:
        breaking.close()
    assert (tmp_path / "got").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.endswith(".part")) == []


def test_other_bytes_than_the_catalogues_are_never_given_a_name(
    client: Client, cluster: StorageCluster, film: Path, tmp_path: Path
) -> None:
    client.files.put(film, "films/f")
    [holder] = [node for node in cluster.nodes.values() if node.contents()]
    damaging = BreakingServer(holder.url, 100_000_000, damages=True)
    try:
        for name in cluster.nodes:
            serve_at(cluster, name, damaging.url)
        with pytest.raises(ContentDiffers, match="its BLAKE3 is"):
            client.files.get("films/f", tmp_path / "got")
    finally:
        damaging.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["film.mov"]


def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed(
    client: Client, cluster: StorageCluster, film: Path
) -> None:
    client.files.put(film, "films/f")
    with client.files.open("films/f") as opened:
        assert len(opened.read(10)) == 10
        client.files.put(io.BytesIO(b"other"), "films/f")
        opened.seek(5_000_000)
        with pytest.raises(FileReplaced):
            opened.read(10)


def test_a_put_goes_to_another_node_when_one_does_not_answer_or_breaks_off(
    client: Client, cluster: StorageCluster, film: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
    breaking = BreakingServer(cluster.nodes["b"].url, 0)
    try:
        serve_at(cluster, "a", nowhere)
        serve_at(cluster, "b", breaking.url)
        for number in range(12):
            assert client.files.put(film, f"films/{number}").size == 9_000_000
        assert breaking.broken
        serve_at(cluster, "c", nowhere)
        with pytest.raises(NoNodeTakes, match="Connection refused"):
            client.files.put(film, "films/none")
    finally:
        breaking.close()
    assert client.files.list("films", "none").files == []


def test_what_cannot_be_stored_is_refused_with_its_own_error(
    client: Client, cluster: StorageCluster, film: Path
) -> None:
    client.files.put(film, "films/f")
    with pytest.raises(FileConditionFailed):
        client.files.put(film, "films/f", only_new=True)
    with pytest.raises(BucketNotFound):
        client.files.put(film, "music/f")
    with pytest.raises(FileClassNotFound):
        client.files.put(film, "films/f", class_name="x")
    with pytest.raises(InvalidFile, match="write BUCKET/KEY"):
        client.files.put(film, "films")
    with pytest.raises(InvalidFile, match="content_type"):
        client.files.put(film, "films/f", content_type="video\r\nx-peerd-class: safe")
    with pytest.raises(InvalidFile, match="metadata"):
        client.files.put(film, "films/f", metadata={"a b": ""})
    with pytest.raises(FileMissing):
        client.files.get("films/x", io.BytesIO())
    with pytest.raises(FileNotFoundError):
        client.files.put(film.with_name("nowhere"), "films/f")
    client.buckets.change("films", quota=10_000_000)
    with pytest.raises(QuotaExceeded):
        client.files.put(film, "films/g")
    assert client.files.put(film, "films/f").version == 2
    cluster.catalogue.change(disks, disks.c.id > 0, free=GIGABYTE // 1_000, reserve=0)
    with pytest.raises(NoNodeTakes, match="no disk is online and active"):
        client.files.put(film, "films/f")


def test_a_file_that_changes_between_its_hash_and_its_sending_is_not_stored(client: Client, film: Path) -> None:
    class Changing(io.FileIO):
        """Has other bytes when it is read again."""

        def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
            film.write_bytes(os.urandom(9_000_000))
            return super().seek(offset, whence)

    from peerd.storage.client import FilesTransfer  # noqa: PLC0415 - its inner part
    from peerd.storage.put_body import Body  # noqa: PLC0415

    with FilesTransfer(client.database, SECRET, client.actor) as transfer, Changing(film) as opened:
        body = Body.of_file(opened, PutOptions())
        with pytest.raises(ContentDiffers, match="has changed while it was sent"):
            transfer._put(body, "films", "f", PutOptions(), None)
    assert client.files.list("films").files == []


def test_who_may_not_and_what_is_missing(client: Client, cluster: StorageCluster, film: Path) -> None:
    viewer = client.acting_as(Actor.with_role("ann", "viewer"))
    with pytest.raises(NotPermitted, match="it needs the right write-files"):
        viewer.files.put(film, "films/f")
    client.files.put(film, "films/f")
    viewer.files.get("films/f", io.BytesIO())
    foreign = client.acting_as(Actor.with_role("bob", "admin", queues=["video"]))
    with pytest.raises(NotPermitted, match="is none of its files"):
        foreign.files.get("films/f", io.BytesIO())
    with pytest.raises(NotPermitted, match="is none of its files"):
        foreign.files.put(film, "films/f")
    with Client(cluster.catalogue.store, secret="another secret of the tests") as wrong:
        with pytest.raises(NoSourceLeft, match="the signature is wrong"):
            wrong.files.get("films/f", io.BytesIO())
        with pytest.raises(Exception, match="the signature is wrong"):
            wrong.files.put(film, "films/f")
    with Client(cluster.catalogue.store) as without, pytest.raises(NoClusterSecret):
        without.files.get("films/f", io.BytesIO())


def test_the_memory_does_not_grow_with_the_file(client: Client, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as opened:
        opened.truncate(100_000_000)
    with tracemalloc_peak() as peak:
        client.files.put(large, "films/large")
        client.files.get("films/large", tmp_path / "got")
    assert peak[0] < 60_000_000, "the nodes of this process are counted, too"
    assert (tmp_path / "got").stat().st_size == 100_000_000


class tracemalloc_peak:  # noqa: N801 - used as a function
    """The greatest memory of a block, in bytes."""

    def __enter__(self) -> list[int]:
        tracemalloc.start()
        self.peak: list[int] = []
        return self.peak

    def __exit__(self, *_: object) -> None:
        self.peak.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
