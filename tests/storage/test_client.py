"""Putting and getting contents with a client of the database or of a server: whole or not at all, whoever fails."""

from __future__ import annotations

import asyncio
import io
import os
import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from peerd import Actor, Client, NotPermitted
from peerd.domain.errors import PeerdError
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
from peerd.storage.client import FilesTransfer
from peerd.storage.file_headers import PutOptions, PutTarget
from peerd.storage.put_body import Body
from peerd.storage.transfer import node_http
from peerd.storage.transfer.errors import NoSourceLeft
from peerd.store.schema.tables import disks
from tests.storage.breaking import Relay, breaking_nodes, got, little_memory, nowhere, serve_at
from tests.storage.nodes import SECRET, StorageCluster
from tests.store.file_steps import GIGABYTE

pytestmark = pytest.mark.usefixtures("short_pauses")


def test_a_file_is_put_got_and_removed(client: Client, cluster: StorageCluster, film: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path, content = "films/2026/größe 1?#%2F..mov", film.read_bytes()
    stored = client.files.put(
        film,
        path,
        content_type="video/quicktime",
        metadata={"take": " drei ä"},
        expires_in="7d",
        progress=lambda done, size: seen.append((done, size)),
    )
    assert (stored.key, stored.size, stored.version) == (path[6:], 9_000_000, 1)
    assert (stored.content_type, stored.metadata) == ("video/quicktime", {"take": " drei ä"})
    assert stored.expires_at is not None
    assert (seen[-1], len(seen) > 5) == ((9_000_000, 9_000_000), True)
    cluster.run_tasks()
    found = client.files.stat(path)
    assert (client.files.get(path, tmp_path / "got"), found.health) == (found.file, "whole")
    assert (tmp_path / "got").read_bytes() == content
    (tmp_path / "folder").mkdir()
    client.files.get(path, tmp_path / "folder")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["größe 1?#%2F..mov"]
    with client.files.open(path) as opened:
        assert opened.read(10) == content[:10]
        opened.seek(-7, os.SEEK_END)
        assert opened.read() == content[-7:]
        opened.seek(5_000_000)
        assert opened.read(100) == content[5_000_000:5_000_100]
    assert client.files.put(io.BytesIO(b"two"), path).version == 2
    client.files.move(path, "films/b")
    assert client.files.remove("films/b").size == 3
    with pytest.raises(FileMissing):
        client.files.get(path, tmp_path / "none")
    cluster.run_tasks()
    assert [node.contents() for node in cluster.nodes.values()] == [[], [], []]


def test_streams_of_unknown_size_and_empty_files(client: Client, film: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb") as opened:
        opened.write(b"of a pipe")
        opened.close()
        client.files.put(pipe, "films/pipe")
    client.files.put(io.BytesIO(), "films/empty")
    assert (got(client, "films/pipe"), got(client, "films/empty")) == (b"of a pipe", b"")

    async def the_same_awaited() -> None:
        await client.aio.files.put(film, "films/f")
        await client.aio.files.get("films/f", tmp_path / "got")
        await client.aio.files.remove("films/f")

    asyncio.run(the_same_awaited())
    assert (tmp_path / "got").read_bytes() == film.read_bytes()


def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed(client: Client, film: Path) -> None:
    client.files.put(film, "films/f")
    with client.files.open("films/f") as opened:
        assert len(opened.read(10)) == 10
        client.files.put(io.BytesIO(b"other"), "films/f")
        opened.seek(5_000_000)
        with pytest.raises(FileReplaced):
            opened.read(10)


def test_what_cannot_be_stored_has_its_own_error(client: Client, cluster: StorageCluster, film: Path) -> None:
    client.files.put(film, "films/f")
    table: list[tuple[str, dict[str, Any], type[Exception], str]] = [
        ("films/f", {"only_new": True}, FileConditionFailed, "there is a file of this key"),
        ("music/f", {}, BucketNotFound, "music"),
        ("films/f", {"class_name": "x"}, FileClassNotFound, "x"),
        ("films", {}, InvalidFile, "write BUCKET/KEY"),
        ("films/f", {"content_type": "video\r\nx-peerd-class: safe"}, InvalidFile, "content_type"),
        ("films/f", {"expires_in": "100000w"}, InvalidFile, "within a hundred years"),
        ("films/f", {"metadata": {"a b": ""}}, InvalidFile, "metadata"),
        ("films/f", {"metadata": {"take": "3", "Take": "4"}}, InvalidFile, "differ in capitals alone"),
        ("films/f", {"metadata": dict.fromkeys(map("n{}".format, range(65)), "")}, InvalidFile, "more than 64 names"),
    ]
    for path, options, error, problem in table:
        with pytest.raises(error, match=problem):
            client.files.put(film, path, **options)
    with pytest.raises(FileNotFoundError):
        client.files.put(film.with_name("nowhere"), "films/f")
    client.buckets.change("films", quota=10_000_000)
    with pytest.raises(QuotaExceeded):
        client.files.put(film, "films/g")
    assert client.files.put(film, "films/f", metadata=dict.fromkeys(map("n{}".format, range(64)), "")).version == 2
    assert got(client) == film.read_bytes()
    cluster.catalogue.change(disks, disks.c.id > 0, free=GIGABYTE // 1_000, reserve=0)
    with pytest.raises(NoNodeTakes, match="has room for it"):
        client.files.put(film, "films/f")


@pytest.mark.slow
def test_the_memory_does_not_grow_with_the_file(client: Client, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as opened:
        opened.truncate(100_000_000)
    with little_memory(60_000_000):
        client.files.put(large, "films/large")
        client.files.get("films/large", tmp_path / "got")
    assert (tmp_path / "got").stat().st_size == 100_000_000


def test_a_put_goes_to_another_node_when_one_breaks_off(client: Client, cluster: StorageCluster, film: Path) -> None:
    closed = nowhere()
    with Relay(cluster.nodes["b"].url, after=60_000) as relay:
        serve_at(cluster, "a", closed)
        serve_at(cluster, "b", relay.url)
        while not relay.ended:  # which node is asked first is random
            assert client.files.put(film, "films/f").size == 9_000_000
        serve_at(cluster, "c", closed)
        with pytest.raises(NoNodeTakes):
            client.files.put(film, "films/none")
    assert client.files.list("films", "none").files == []


def test_a_get_goes_on_at_another_node(program: Client, cluster: StorageCluster, film: Path, tmp_path: Path) -> None:
    put = program.files.put(film, "films/f")
    cluster.run_tasks()
    [holder, other] = [node for node in cluster.nodes.values() if node.contents()]
    with Relay(holder.url, answers=repeat(6_000_000)) as relay:
        serve_at(cluster, holder.name, relay.url)
        while not relay.ended:  # which of the two is asked first is random
            assert program.files.get("films/f", tmp_path / "got") == put
            assert (tmp_path / "got").read_bytes() == film.read_bytes()
    assert other.contents() == holder.contents()


def test_a_get_that_fails_leaves_what_was_there(
    program: Client, cluster: StorageCluster, film: Path, tmp_path: Path
) -> None:
    program.files.put(film, "films/f")
    (tmp_path / "got").write_text("before")
    with (
        breaking_nodes(cluster, answers=chain([6_000_000], repeat(0))),
        pytest.raises(NoSourceLeft, match="connection ended at byte"),
    ):
        program.files.get("films/f", tmp_path / "got")
    with breaking_nodes(cluster, damages=True), pytest.raises(ContentDiffers, match="its BLAKE3 is"):
        program.files.get("films/f", tmp_path / "got")
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (film.stat().st_size - 1, most))  # as a disk that is full before the end
    try:
        with pytest.raises(OSError, match="File too large"):
            program.files.get("films/f", tmp_path / "got")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert (tmp_path / "got").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["film.mov", "got"]


def test_who_may_not_and_what_is_missing(program: Client, cluster: StorageCluster, film: Path) -> None:
    viewer = program.acting_as(Actor.with_role("ann", "viewer"))
    foreign = program.acting_as(Actor.with_role("bob", "admin", queues=["video"]))
    program.files.put(film, "films/f")
    viewer.files.get("films/f", io.BytesIO())
    with pytest.raises(NotPermitted, match="it needs the right write-files"):
        viewer.files.put(film, "films/f")
    with Client(cluster.catalogue.store, secret="another secret of the tests") as wrong:
        for one, problem in ((foreign, "is none of its files"), (wrong, "the signature is wrong")):
            with pytest.raises(PeerdError, match=problem):
                one.files.get("films/f", io.BytesIO())
            with pytest.raises(PeerdError, match=problem):
                one.files.put(film, "films/f")
    with Client(cluster.catalogue.store) as without, pytest.raises(NoClusterSecret):
        without.files.get("films/f", io.BytesIO())


def test_a_file_that_changes_between_its_hash_and_its_sending_is_not_stored(program: Client, film: Path) -> None:
    class Changing(io.FileIO):
        """Has other bytes when it is read again."""

        def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
            film.write_bytes(os.urandom(9_000_000))
            return super().seek(offset, whence)

    with FilesTransfer(program.database, SECRET, program.actor) as transfer, Changing(film) as opened:
        body = Body.of_file(opened, PutOptions())
        with pytest.raises(ContentDiffers, match="has changed while it was sent"):
            transfer._put(body, PutTarget("films", "f"), None)
    assert program.files.list("films").files == []


def test_a_put_to_a_node_that_stands_still_goes_to_another(
    program: Client, cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_http, "BODY_TIMEOUT", 0.2)
    frozen = cluster.catalogue.disk("frozen", free=10**15)
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        cluster.catalogue.change(disks, disks.c.id == frozen, url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        put = pool.submit(program.files.put, io.BytesIO(b"stream"), "films/f")
        asked, _ = silent.accept()
        try:
            assert put.result(20).size == len(b"stream")
            assert b"stream" not in asked.recv(64 * 1024)
        finally:
            asked.close()


def test_a_node_that_stands_still_is_the_last_that_is_asked_for_a_content(
    program: Client, cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.files.put(io.BytesIO(b"content"), "films/f")
    cluster.run_tasks()
    monkeypatch.setattr(node_http, "READ_TIMEOUT", 0.2)
    holder = program.files.stat("films/f").copies[0].node or ""
    with Relay(cluster.nodes[holder].url, answers=repeat(0)) as still:
        serve_at(cluster, holder, still.url)
        for _ in range(100):
            assert got(program, "films/f") == b"content"
            if still.ended:
                break
        asked = still.ended
        for _ in range(20):
            assert got(program, "films/f") == b"content"
        assert still.ended == asked > 0
