"""A file from the put to its copies, over real servers: whole on several nodes, whatever happens on the way."""

from __future__ import annotations

import errno
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from blake3 import blake3

from peerd.domain.files import FileClass
from peerd.domain.outcome import Snooze
from peerd.storage.disk.digest import digest_of
from peerd.storage.disk.open_disk import LocalRange
from peerd.storage.node import digest_in_catalogue
from peerd.storage.serving import FileReading
from peerd.storage.transfer.errors import NoSourceLeft
from peerd.store.files.classes import set_class
from peerd.store.files.copies import find_contents
from peerd.store.files.versions import get_version
from peerd.store.schema.tables import disks
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually
from tests.storage.nodes import ServedNode, StorageCluster, ask_node, node_signature


@pytest.fixture
def cluster(cluster: StorageCluster) -> StorageCluster:
    """Three nodes, and a bucket `films`."""
    cluster.catalogue.bucket()
    return cluster


def put(node: ServedNode, content: bytes, key: str = "f") -> int:
    """Put a file by this node; its id."""
    return int(ask_node(node, "PUT", f"/files/films/{key}", content).json()["id"])


def flip(path: Path, content: bytes, position: int) -> None:
    """Damage a byte of a copy."""
    with path.open("r+b") as damaged:
        damaged.seek(position)
        damaged.write(bytes([content[position] ^ 1]))


def test_a_file_that_is_put_has_two_equal_copies_and_is_read_from_every_node(cluster: StorageCluster) -> None:
    a, content = cluster.nodes["a"], os.urandom(10_000_000)
    answer = ask_node(a, "PUT", "/files/films/one%20%C3%A4.mov", content, content_type="video/quicktime")
    assert answer.status_code == 201, answer.text
    file, tag = answer.json(), f'"{answer.json()["blake3"]}"'
    assert (file["key"], file["version"], file["size"]) == ("one ä.mov", 1, len(content))
    found = a.node.database.read(find_contents, [int(file["id"])])
    assert digest_in_catalogue(found[int(file["id"])]) == digest_of(content), "of the whole and of its chunks"
    done = cluster.run_tasks()
    [(copier, name, outcome)] = done
    assert (name, outcome) == ("copy", {"copied": 1, "bytes": len(content)})
    assert copier in {"b", "c"}
    states = cluster.catalogue.copies(int(file["id"]))
    assert states == {a.disk: "stored", cluster.nodes[copier].disk: "stored"}
    small = {f"f{number:02}": os.urandom(number * 10) for number in range(12)}
    for key, few in small.items():
        put(a, few, key)
    cluster.run_tasks()
    page = ask_node(a, "GET", "/files/films?limit=5&prefix=f0").json()
    assert [one["key"] for one in page["files"]] == list(small)[:5]
    for node in cluster.nodes.values():
        got = ask_node(node, "GET", "/files/films/one%20%C3%A4.mov")
        assert (got.status_code, got.headers["content-type"]) == (200, "video/quicktime")
        assert got.content == content
        assert (f"{int(file['id']):016x}" in node.contents()) is (node.name in {"a", copier})
        assert {key: ask_node(node, "GET", f"/files/films/{key}").content for key in small} == small

    head = ask_node(a, "HEAD", "/files/films/one%20%C3%A4.mov")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "10000000", b"")
    part = ask_node(cluster.nodes["b"], "GET", "/files/films/one%20%C3%A4.mov", range="bytes=4194300-4194309")
    assert (part.status_code, part.content) == (206, content[4194300:4194310])
    assert ask_node(a, "PUT", "/files/films/one%20%C3%A4.mov", b"x", if_none_match="*").status_code == 412
    for conditions in ({"if_match": "*"}, {"if_match": f"{tag}, {tag}"}, {"if_none_match": tag}):
        assert ask_node(a, "PUT", "/files/films/one%20%C3%A4.mov", b"x", **conditions).status_code == 400
    assert ask_node(a, "PUT", "/files/films/one%20%C3%A4.mov", b"x", if_match=tag).json()["version"] == 2


def test_a_copy_whose_sources_are_away_waits_for_them_and_uses_up_no_attempt(cluster: StorageCluster) -> None:
    a, change = cluster.nodes["a"], cluster.catalogue.change
    put(a, b"content")
    [task] = cluster._pending()
    body, node = json.loads(task["body"]), cluster._node_for(task)
    change(disks, disks.c.id == a.disk, url="http://127.0.0.1:9", seen_at=seconds_from_now(-60))

    def copy() -> object:
        return node.duties.copy(body["disk"], body["files"], threading.Event(), lambda *_: None)

    with pytest.raises(Snooze, match="the disks that have the contents are away"):
        copy()
    change(disks, disks.c.id == a.disk, seen_at=seconds_from_now(0))
    with pytest.raises(NoSourceLeft, match=r"from any node: http.*; start the nodes that have it"):
        copy()
    change(disks, disks.c.id == a.disk, url=a.url)
    assert copy() == {"copied": 1, "bytes": 7}


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


def test_a_reading_that_is_closed_early_closes_its_file_late(
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


def test_a_damaged_copy_that_cannot_be_moved_is_not_read(
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


def test_a_file_is_deleted_everywhere_and_what_is_not_signed_is_refused(cluster: StorageCluster) -> None:
    a = cluster.nodes["a"]
    ask_node(a, "PUT", "/files/films/f", b"bytes")
    cluster.run_tasks()
    assert ask_node(cluster.nodes["b"], "DELETE", "/files/films/f").status_code == 204
    assert ask_node(a, "GET", "/files/films/f").status_code == 404
    cluster.run_tasks()
    assert [node.contents() for node in cluster.nodes.values()] == [[], [], []]
    for method, target in (("GET", "/files/films/f"), ("PUT", "/files/films/f"), ("GET", "/contents/0000000000000001")):
        assert httpx.request(method, a.url + target).status_code == 403
        wrong = node_signature(a, method, "/files/films/other")
        assert httpx.request(method, a.url + target, headers=wrong).status_code == 403


def test_a_request_that_was_overheard_does_nothing_on_another_node_or_with_another_body(
    cluster: StorageCluster,
) -> None:
    a, b, _ = cluster.nodes.values()
    target, announced = "/files/films/f", {"x-peerd-blake3": blake3(b"bytes").hexdigest()}
    overheard = announced | node_signature(a, "PUT", target, announced)
    other = {"x-peerd-blake3": blake3(b"other").hexdigest()}
    for node, headers, body, status in (
        (b, overheard, b"bytes", 403),
        (a, overheard | other, b"other", 403),
        (a, {name: value for name, value in overheard.items() if name not in announced}, b"other", 403),
        (a, overheard, b"bytes", 201),
        (a, overheard, b"bytes", 403),
    ):
        assert httpx.put(node.url + target, content=body, headers=headers).status_code == status
    overheard = announced | node_signature(a, "PUT", target, announced)
    assert httpx.put(a.url + target, content=b"other", headers=overheard).status_code == 422
    assert ask_node(a, "GET", target).content == b"bytes"


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
    assert sorted(cluster.catalogue.copies(int(answer.json()["id"])).values()) == ["stored", "stored"]


def test_a_put_finds_a_disk_that_has_come_back_since_disks_were_examined(cluster: StorageCluster) -> None:
    a = cluster.nodes["a"]
    path, away = a.paths[0], a.paths[0].with_name("away")
    path.rename(away)
    a.node.disks.refresh()
    assert ask_node(a, "PUT", "/files/films/f", b"content").status_code == 507
    away.rename(path)
    a.node.disks._refreshed_at = 0.0
    assert ask_node(a, "PUT", "/files/films/f", b"content").status_code == 201
