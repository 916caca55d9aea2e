"""A file from the put to its copies, over real servers: whole on several nodes, whatever happens on the way."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from peerd.domain.files import FileClass
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import digest_of
from peerd.storage.disk.open_disk import LocalRange
from peerd.storage.node import digest_in_catalogue
from peerd.storage.server.sending import MOST_AHEAD, next_pieces
from peerd.storage.serving import FileReading
from peerd.storage.transfer.pull import TransferControl, Wanted, pull_content
from peerd.store.files.classes import set_class
from peerd.store.files.copies import find_contents
from peerd.store.files.versions import get_version
from peerd.testing import eventually
from tests.storage.nodes import ServedNode, StorageCluster, ask_node, node_signature


@pytest.fixture
def cluster(cluster: StorageCluster) -> StorageCluster:
    """Three nodes, and a bucket `films`."""
    cluster.catalogue.bucket()
    return cluster


def put(node: ServedNode, content: bytes, key: str = "f") -> int:
    """Put a file by this node; its id."""
    return int(ask_node(node, "PUT", f"/files/films/{key}", content).json()["id"], 16)


def flip(path: Path, content: bytes, position: int) -> None:
    """Damage a byte of a copy."""
    with path.open("r+b") as damaged:
        damaged.seek(position)
        damaged.write(bytes([content[position] ^ 1]))


def wanted(node: ServedNode, file_id: int) -> Wanted:
    content = node.node.database.read(find_contents, [file_id])[file_id]
    return Wanted(ContentId(file_id), digest_in_catalogue(content))


def test_a_file_that_is_put_has_two_equal_copies_and_is_read_from_every_node(cluster: StorageCluster) -> None:
    a, content = cluster.nodes["a"], os.urandom(10_000_000)
    answer = ask_node(a, "PUT", "/files/films/one%20%C3%A4.mov", content, content_type="video/quicktime")
    assert answer.status_code == 201, answer.text
    file = answer.json()
    assert (file["key"], file["version"], file["size"]) == ("one ä.mov", 1, len(content))
    assert wanted(a, int(file["id"], 16)).digest == digest_of(content), "of the whole and of its chunks"
    done = cluster.run_tasks()
    [(copier, name, outcome)] = done
    assert (name, outcome) == ("copy", {"copied": 1, "bytes": len(content)})
    assert copier in {"b", "c"}
    states = cluster.catalogue.copies(int(file["id"], 16))
    assert states == {a.disk: "stored", cluster.nodes[copier].disk: "stored"}
    for node in cluster.nodes.values():
        got = ask_node(node, "GET", "/files/films/one%20%C3%A4.mov")
        assert (got.status_code, got.headers["content-type"]) == (200, "video/quicktime")
        assert got.content == content
        assert node.contents() == ([file["id"]] if node.name in {"a", copier} else [])


def test_ranges_and_conditions(cluster: StorageCluster) -> None:
    a, content = cluster.nodes["a"], os.urandom(9_000_000)
    file = ask_node(a, "PUT", "/files/films/f", content).json()
    cluster.run_tasks()
    for node in cluster.nodes.values():
        part = ask_node(node, "GET", "/files/films/f", range="bytes=4194300-4194309")
        assert (part.status_code, part.headers["content-range"]) == (206, "bytes 4194300-4194309/9000000")
        assert part.content == content[4194300:4194310]
        assert ask_node(node, "GET", "/files/films/f", range="bytes=-5").content == content[-5:]
    assert ask_node(a, "GET", "/files/films/f", range="bytes=9000000-").status_code == 416
    tag = f'"{file["blake3"]}"'
    assert ask_node(a, "GET", "/files/films/f", if_none_match=tag).status_code == 304
    assert ask_node(a, "GET", "/files/films/f", if_match='"another"').status_code == 412
    head = ask_node(a, "HEAD", "/files/films/f")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "9000000", b"")
    assert ask_node(a, "PUT", "/files/films/f", b"x", if_none_match="*").status_code == 412
    assert ask_node(a, "GET", "/files/films/f").content == content
    assert ask_node(a, "PUT", "/files/films/f", b"x", if_match=tag).json()["version"] == 2
    assert ask_node(a, "GET", "/files/films/f").content == b"x"


def test_an_empty_file_and_many_small_ones_are_copied_together(cluster: StorageCluster) -> None:
    a = cluster.nodes["a"]
    files = {f"f{number:03}": os.urandom(number * 10) for number in range(30)}
    for key, content in files.items():
        assert ask_node(a, "PUT", f"/files/films/{key}", content).status_code == 201
    cluster.run_tasks()
    for node in cluster.nodes.values():
        for key, content in files.items():
            assert ask_node(node, "GET", f"/files/films/{key}").content == content
    page = ask_node(a, "GET", "/files/films?limit=10&prefix=f00").json()
    assert [file["key"] for file in page["files"]] == list(files)[:10]


def test_a_damaged_copy_is_never_sent_but_quarantined_and_made_anew(cluster: StorageCluster) -> None:
    a, content = cluster.nodes["a"], os.urandom(9_000_000)
    file_id = put(a, content)
    cluster.run_tasks()
    damaged = a.content_path(file_id)
    flip(damaged, content, 5_000_000)  # in its second chunk
    assert ask_node(a, "GET", "/files/films/f").content == content
    assert not damaged.exists()
    [quarantined] = (a.paths[0] / "quarantine").iterdir()
    assert quarantined.name.split(".")[:2] == [f"{file_id:016x}", "mismatch"]
    assert cluster.catalogue.copies(file_id)[a.disk] == "bad"
    cluster.run_tasks()
    states = cluster.catalogue.copies(file_id)
    assert sorted(states.values()) == ["stored", "stored"]
    assert ask_node(a, "GET", "/files/films/f").content == content


def test_what_was_verified_can_be_sent_although_the_next_chunk_is_damaged(cluster: StorageCluster) -> None:
    a, content = cluster.nodes["a"], os.urandom(9_000_000)
    file_id = put(a, content)
    cluster.run_tasks()
    flip(a.content_path(file_id), content, 5_000_000)
    file = a.node.database.read(get_version, file_id)
    assert file is not None
    with FileReading.begin(a.node, file) as reading:
        first, *others = next_pieces(reading.pieces(0, len(content)), MOST_AHEAD)
        assert isinstance(first, LocalRange)
        assert os.pread(first.fd, first.count, first.offset) == content[: first.count]
        assert all(isinstance(piece, bytes) for piece in others)
    assert a.contents() == []


def test_a_reading_that_is_closed_while_a_chunk_is_verified_closes_its_file_afterwards(
    cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, content = cluster.nodes["a"], os.urandom(300_000)
    file_id = put(a, content)
    file = a.node.database.read(get_version, file_id)
    assert file is not None
    read, begun, goes_on, used = os.preadv, threading.Event(), threading.Event(), list[int]()

    def read_later(fd: int, *arguments: Any) -> int:
        used.append(fd)
        begun.set()
        assert goes_on.wait(60)
        return read(fd, *arguments)

    reading = FileReading.begin(a.node, file)
    monkeypatch.setattr(os, "preadv", read_later)
    with ThreadPoolExecutor(1) as threads:
        piece = threads.submit(next, reading.pieces(0, len(content)))
        assert begun.wait(60)
        reading.close()
        assert os.fstat(used[0]).st_size == len(content), "the descriptor is still that of the content"
        goes_on.set()
        assert isinstance(piece.result(), LocalRange)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(used[0])
    assert cluster.catalogue.copies(file_id)[a.disk] == "stored"


def test_a_damaged_copy_that_cannot_be_moved_away_is_read_from_another_node(
    cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, content = cluster.nodes["a"], os.urandom(200_000)
    file_id = put(a, content)
    cluster.run_tasks()
    a.content_path(file_id).write_bytes(bytes([content[0] ^ 1]) + content[1:])

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "rename", fail)
    monkeypatch.setattr(os, "link", fail)
    assert ask_node(a, "GET", "/files/films/f").content == content
    assert cluster.catalogue.copies(file_id)[a.disk] == "bad"


def test_a_copy_goes_on_from_another_source_when_one_is_damaged_in_the_middle(cluster: StorageCluster) -> None:
    a, content = cluster.nodes["a"], os.urandom(9_000_000)
    file_id = put(a, content)
    cluster.run_tasks()
    [second] = [node for node in cluster.nodes.values() if node.name != "a" and node.contents()]
    with second.content_path(file_id).open("r+b") as file:
        file.truncate(6_000_000)
    [third] = [node for node in cluster.nodes.values() if node not in {a, second}]
    urls = [second.url, a.url]
    pulled = pull_content(
        third.node.http, third.node.disks.usable()[0].opened, wanted(third, file_id), urls, TransferControl()
    )
    assert [str(content) for content in pulled.stored] == [f"{file_id:016x}"]
    assert third.content_path(file_id).read_bytes() == content


def test_a_file_is_deleted_everywhere_and_what_is_not_signed_is_refused(cluster: StorageCluster) -> None:
    a = cluster.nodes["a"]
    ask_node(a, "PUT", "/files/films/f", b"bytes")
    cluster.run_tasks()
    assert ask_node(cluster.nodes["b"], "DELETE", "/files/films/f").status_code == 204
    assert ask_node(a, "GET", "/files/films/f").status_code == 404
    cluster.run_tasks()
    assert [node.contents() for node in cluster.nodes.values()] == [[], [], []]
    assert ask_node(a, "DELETE", "/files/films/f").status_code == 204
    for method, target in (("GET", "/files/films/f"), ("PUT", "/files/films/f"), ("GET", "/contents/0000000000000001")):
        assert httpx.request(method, a.url + target).status_code == 403
        wrong = node_signature(a, method, "/files/films/other")
        assert httpx.request(method, a.url + target, headers=wrong).status_code == 403


def test_a_hostile_key_is_only_a_name(cluster: StorageCluster) -> None:
    a, stored = cluster.nodes["a"], list[str]()
    for key in ("..%2F..%2Fetc%2Fpasswd", "%2e%2e/%2e%2e/x", "a%00b", "%ff", "x" * 1025, "%F0%9F%98%80"):
        answer = ask_node(a, "PUT", f"/files/films/{key}", b"bytes")
        if answer.status_code == 201:
            assert ask_node(a, "GET", f"/files/films/{key}").content == b"bytes"
            stored.append(answer.json()["id"])
        else:
            assert (answer.status_code, answer.json()["code"]) == (422, "InvalidFile"), key
    assert (a.contents(), len(stored)) == (sorted(stored), 3)


def test_a_put_is_acknowledged_when_as_many_copies_are_durable_as_its_class_wants(cluster: StorageCluster) -> None:
    a = cluster.nodes["a"]
    cluster.catalogue.store.run(set_class, FileClass(name="safe", copies=2, durable=2))
    cluster.refresh()
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(ask_node, a, "PUT", "/files/films/f", b"bytes", x_peerd_class="safe")
        eventually(cluster._pending, timeout=20)
        assert ask_node(a, "GET", "/files/films/f").status_code == 404, "it is not current before"
        assert not put.done()
        cluster.run_tasks()
        answer = put.result(20)
    assert (answer.status_code, answer.json()["version"]) == (201, 1)
    assert sorted(cluster.catalogue.copies(int(answer.json()["id"], 16)).values()) == ["stored", "stored"]


def test_a_put_finds_a_disk_that_has_come_back_since_disks_were_examined(cluster: StorageCluster) -> None:
    a = cluster.nodes["a"]
    path, away = a.paths[0], a.paths[0].with_name("away")
    path.rename(away)
    a.node.disks.refresh()
    assert ask_node(a, "PUT", "/files/films/f", b"content").status_code == 507
    away.rename(path)
    a.node.disks._refreshed_at = 0.0
    assert ask_node(a, "PUT", "/files/films/f", b"content").status_code == 201
