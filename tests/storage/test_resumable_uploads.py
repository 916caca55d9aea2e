"""Puts in parts, over real servers: durable part by part, gone on with after failures, whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from blake3 import blake3

from peerd import Client
from peerd.domain.file_errors import (
    FileConditionFailed,
    QuotaExceeded,
    UploadBroken,
    UploadGone,
    UploadPositionDiffers,
)
from peerd.storage.auditing import UNNAMED, FileAuditor
from peerd.storage.maintenance import StorageMaintenance
from peerd.storage.node import StorageNode
from peerd.storage.resumable import PartOfUpload, complete
from peerd.storage.uploading import sending
from peerd.store.files import uploads
from peerd.store.schema.tables import disks, file_uploads
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually
from peerd.testing.faulty_database import FaultyDatabase
from tests.storage.breaking import (
    MIB,
    breaking_nodes,
    got,
    interrupted,
    nowhere,
    parts_of,
    put,
    serve_at,
    unfinished,
    with_digest,
)
from tests.storage.nodes import SECRET, NoRings, ServedNode, StorageCluster, ask_node, carry_out
from tests.store.world import at_once

pytestmark = pytest.mark.usefixtures("small_parts")


def holder(cluster: StorageCluster) -> ServedNode:
    """The node with the part of the only upload."""
    [upload] = unfinished(cluster)
    return next(node for node in cluster.nodes.values() if node.disk == upload.disk)


def test_a_file_is_put_in_parts_and_is_as_if_put_at_once(client: Client, cluster: StorageCluster, film: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    more: dict[str, Any] = {"content_type": "video/quicktime", "metadata": {"camera": "ü 7"}, "expires_in": "7d"}
    stored = put(client, film, **more, progress=lambda done, size: seen.append((done, size)))
    assert (stored.size, stored.version, stored.content_type) == (9_000_000, 1, "video/quicktime")
    assert stored.blake3 == blake3(film.read_bytes()).hexdigest()
    assert (stored.metadata, stored.expires_at is None) == ({"camera": "ü 7"}, False)
    assert seen[-1] == (9_000_000, 9_000_000)
    assert got(client) == film.read_bytes()
    assert (unfinished(cluster), parts_of(cluster)) == ([], [])
    [entry] = [one for one in client.audit.page(limit=100).items if one.operation == "files.put"]
    is_of_server = client._mode.shown_url.startswith("http:")
    actor = ("studio", "token") if is_of_server else (client.actor.name, "python")
    assert (entry.target, entry.actor, entry.actor_kind) == ("films/f", *actor)


def test_a_put_goes_on_behind_the_last_durable_part_after_a_growing_pause(
    client: Client, cluster: StorageCluster, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, pauses = [0], list[float]()
    monkeypatch.setattr(sending, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
    with breaking_nodes(cluster, after=1_500_000, broken=2, method=b"PUT") as servers:
        assert put(client, film, progress=lambda done, size: seen.append(done)).size == 9_000_000
    assert sum(server.ended for server in servers) == 2
    first, second = pauses
    assert second == 2 * first > 0
    assert got(client) == film.read_bytes()
    sent = sum(max(0, after - before) for before, after in pairwise(seen))
    assert sent <= 9_000_000 + 2 * 2 * MIB, "what was durable is not sent again"


def test_a_lost_answer_changes_nothing(
    client: Client, cluster: StorageCluster, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.storage.transfer.node_http.MAX_IDLE", 0)  # each request has a connection of its own
    with breaking_nodes(cluster, broken=1, answers=repeat(0), method=b"PUT") as servers:
        assert put(client, film, only_new=True).version == 1
    assert sum(server.ended for server in servers), "those to parts"
    interrupted(client, cluster, film, path="films/g")
    with breaking_nodes(cluster, broken=1, answers=repeat(0), method=b"POST") as servers:
        assert put(client, film, "films/g").version == 1
    assert sum(server.ended for server in servers) == 1, "that to the completion"
    with breaking_nodes(cluster, broken=0, answers=repeat(0), method=b"POST") as servers:

        def break_completion(done: int, _: int | None) -> None:
            for server in servers:
                server.break_next(done == film.stat().st_size)

        assert put(client, io.BytesIO(film.read_bytes()), "films/h", progress=break_completion).version == 1
    assert sum(server.ended for server in servers) == 1, "that to the completion of a stream"
    assert got(client) == got(client, "films/g") == got(client, "films/h") == film.read_bytes()
    assert unfinished(cluster) == []


def test_the_next_puts_of_a_file_go_on_also_two_at_once(client: Client, cluster: StorageCluster, film: Path) -> None:
    interrupted(client, cluster, film)
    [upload] = client.files.uploads.list("films").uploads
    assert (upload.received, upload.size, upload.key, upload.is_of_s3) == (4 * MIB, 9_000_000, "f", False)
    assert client.files.list("films").files == []
    seen: list[int] = []
    stored = put(client, film, progress=lambda done, size: seen.append(done))
    assert seen[0] == 4 * MIB
    assert stored.blake3 == blake3(film.read_bytes()).hexdigest()
    assert got(client) == film.read_bytes()
    upload_id = interrupted(client, cluster, film, metadata={"a": "1"})
    holder(cluster).node.running_uploads.forget(upload_id)  # as after a restart: what is there is hashed again
    again = put(client, film, metadata={"a": "2"})
    assert (again.blake3, again.metadata) == (stored.blake3, {"a": "2"}), "that of the put which ends it"
    interrupted(client, cluster, film)
    assert [one.blake3 for one in at_once([lambda: put(client, film)] * 2)] == [stored.blake3] * 2
    assert got(client) == film.read_bytes()
    assert unfinished(cluster) == []


def test_a_file_that_has_changed_since_is_sent_anew(client: Client, cluster: StorageCluster, film: Path) -> None:
    for version, keeps_time in enumerate((False, True), 1):
        status = film.stat()
        interrupted(client, cluster, film)
        film.write_bytes(os.urandom(9_000_000))
        if keeps_time:
            os.utime(film, ns=(status.st_atime_ns, status.st_mtime_ns))
        seen: list[int] = []
        stored = put(client, film, progress=lambda done, size, seen=seen: seen.append(done))
        assert (stored.blake3, stored.version) == (blake3(film.read_bytes()).hexdigest(), version)
        assert (seen[0] <= MIB) is not keeps_time
        assert got(client) == film.read_bytes()
        assert unfinished(cluster) == [], "the first one was aborted"


@pytest.mark.parametrize("happens", ["the file changes", "the upload is aborted", "another put is faster"])
def test_a_put_heeds_what_happens_meanwhile(client: Client, cluster: StorageCluster, film: Path, happens: str) -> None:
    happened: list[object] = []

    def progress(done: int, _: int | None) -> None:
        if done <= 5 * MIB or happened:
            return
        if happens == "the file changes":
            happened.append(film.write_bytes(os.urandom(8_000_000)))
        elif happens == "the upload is aborted":
            happened.append(client.files.uploads.abort(unfinished(cluster)[0].id))
        else:
            happened.append(client.files.put(io.BytesIO(b"faster"), "films/f"))

    if happens == "another put is faster":
        with pytest.raises(FileConditionFailed):
            put(client, film, only_new=True, progress=progress)
        assert got(client) == b"faster"
    else:
        assert put(client, film, only_new=True, progress=progress).version == 1
        assert got(client) == film.read_bytes()
    assert unfinished(cluster) == []


def test_a_quota_counts_what_is_being_sent(client: Client, cluster: StorageCluster, film: Path) -> None:
    client.buckets.change("films", quota=17_000_000)
    interrupted(client, cluster, film, path="films/a")
    interrupted(client, cluster, film, path="films/b")
    with pytest.raises(QuotaExceeded):
        put(client, film, "films/c", only_new=True)
    put(client, film, "films/a")
    client.buckets.change("films", quota=10_000_000)
    with pytest.raises(QuotaExceeded):
        put(client, film, "films/b")


def test_a_beginning_without_an_answer_reserves_nothing(client: Client, cluster: StorageCluster, film: Path) -> None:
    with breaking_nodes(cluster, broken=1, answers=repeat(0), method=b"POST /uploads/films/") as servers:
        put(client, film)
        put(client, io.BytesIO(film.read_bytes()), "films/g")
    assert sum(server.ended for server in servers)
    assert unfinished(cluster) == []


def test_a_stream_survives_connections_that_break_and_not_its_source(client: Client, cluster: StorageCluster) -> None:
    content, exact = os.urandom(9_000_000), os.urandom(4 * MIB)
    assert put(client, io.BytesIO(), "films/empty").size == 0
    assert put(client, io.BytesIO(exact), "films/exact").size == len(exact)
    assert got(client, "films/exact") == exact
    with breaking_nodes(cluster, after=1_500_000, broken=1, method=b"PUT") as servers:
        put(client, io.BytesIO(content))
    assert sum(server.ended for server in servers)
    assert got(client) == content

    class Failing(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            if self.tell() > 5 * MIB:
                raise OSError("the source has failed")
            return super().read(count)

    with pytest.raises(OSError, match="the source has failed"):
        put(client, Failing(content), "films/g")
    assert client.files.list("films", "g").files == []
    assert unfinished(cluster) == []


def test_an_upload_whose_disk_is_lost_or_whose_node_stays_away_begins_anew_elsewhere(
    client: Client, cluster: StorageCluster, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(client, cluster, film)
    lost = holder(cluster).disk
    cluster.catalogue.change(disks, disks.c.id == lost, state="lost")
    stored = put(client, film)
    assert got(client) == film.read_bytes()
    assert lost not in [copy.disk for copy in client.files.stat("films/f").copies if copy.state == "stored"]
    monkeypatch.setattr(sending, "ELSEWHERE_AFTER", 0.2)
    put(client, io.BytesIO(b""), "films/f")
    cluster.catalogue.change(disks, disks.c.id == lost, state="active")
    interrupted(client, cluster, film)
    away, closed = holder(cluster), nowhere()
    serve_at(cluster, away.name, closed)
    assert put(client, film).blake3 == stored.blake3
    assert away.disk not in [copy.disk for copy in client.files.stat("films/f").copies if copy.state == "stored"]
    monkeypatch.setattr(sending, "GIVEN_UP_AFTER", 0.5)
    for name in cluster.nodes:
        serve_at(cluster, name, cluster.nodes[name].url)
    interrupted(client, cluster, film, path="films/g")
    for name in cluster.nodes:
        serve_at(cluster, name, closed)
    with pytest.raises(UploadBroken, match="put it again"):
        put(client, film, "films/g")
    assert [one.received for one in unfinished(cluster) if one.key == "g"] == [4 * MIB], "the next put goes on"


def tidy(cluster: StorageCluster, node: ServedNode) -> None:
    """Let a node remove what was aborted, as soon as the request that was interrupted has ended."""

    def is_tidy() -> bool:
        StorageMaintenance(node.node).run()
        return not parts_of(cluster) and not cluster.catalogue.count(file_uploads)

    eventually(is_tidy)


def test_aborted_and_old_uploads_leave_nothing(client: Client, cluster: StorageCluster, film: Path) -> None:
    upload_id = interrupted(client, cluster, film)
    node = holder(cluster)
    assert len(parts_of(cluster)) == 1
    client.files.uploads.abort(upload_id)
    assert client.files.uploads.list().uploads == []
    with pytest.raises(UploadGone):
        client.files.uploads.abort(upload_id)
    tidy(cluster, node)
    entry = next(one for one in client.audit.page(limit=100).items if one.operation == "files.uploads.abort")
    assert (entry.target, entry.before) == (upload_id, {"bucket": "films", "key": "f", "received": 4 * MIB})
    interrupted(client, cluster, film)
    node = holder(cluster)
    cluster.catalogue.change(file_uploads, file_uploads.c.size > 0, touched_at=seconds_from_now(-8 * 86_400.0))
    tidy(cluster, node)
    assert put(client, film).size == 9_000_000


def test_a_part_counts_only_when_its_fsync_has_succeeded(
    client: Client, cluster: StorageCluster, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, advance = os.fsync, uploads.advance_upload
    of_parts: list[int] = []
    counted: list[tuple[str, int]] = []

    def failing(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().suffix == ".part":
            of_parts.append(fd)
            if len(of_parts) == 2:
                raise OSError(errno.EIO, "the disk failed")
        fsync(fd)

    def count(connection: Any, upload_id: str, offset: int, size: int) -> int:
        counted.append((upload_id, offset))
        return advance(connection, upload_id, offset, size)

    monkeypatch.setattr(os, "fsync", failing)
    monkeypatch.setattr("peerd.storage.resumable.advance_upload", count)
    put(client, film)
    assert got(client) == film.read_bytes()
    (failed, first), *others = counted
    assert first == 0
    assert failed not in {upload_id for upload_id, _ in others}, "nothing is known of its bytes any more"
    assert len(others) == 5


def test_a_class_with_two_durable_copies_is_kept(client: Client, cluster: StorageCluster, film: Path) -> None:
    client.file_classes.set("safe", copies=2, durable=2)
    outcome: list[Any] = []
    putting = threading.Thread(target=lambda: outcome.append(put(client, film, class_name="safe")))
    putting.start()
    while putting.is_alive():
        cluster.run_tasks()
        putting.join(0.1)
    assert outcome[0].class_name == "safe"
    assert client.files.stat("films/f").good == 2


def test_an_interrupted_completion_is_finished(
    client: Client, cluster: StorageCluster, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr("peerd.storage.put_groups.PutGroups.publish", killed)
    monkeypatch.setattr(sending, "GIVEN_UP_AFTER", 0.2)
    monkeypatch.setattr(sending, "ELSEWHERE_AFTER", 60.0)
    with pytest.raises(UploadBroken):
        put(client, film)
    monkeypatch.undo()
    assert parts_of(cluster) == []
    assert sum(len(node.contents()) for node in cluster.nodes.values()) == 1
    assert client.files.put(film, "films/f", parts_above=MIB).version == 1
    assert got(client) == film.read_bytes()
    assert sum(len(node.contents()) for node in cluster.nodes.values()) == 1


def test_hostile_requests_are_refused_at_the_door_of_a_node(program: Client, cluster: StorageCluster) -> None:
    def ask(method: str, target: str, body: bytes = b"") -> tuple[int, str]:
        answer = ask_node(cluster.nodes["a"], method, target, body)
        return answer.status_code, answer.json().get("code") if answer.content else ""

    for query in ("size=x", "size=-1", f"size={2**60}", "size=1&source=%2e%2e%2f"):
        assert ask("POST", f"/uploads/films/f?{query}")[0] == 400
    assert ask("POST", "/uploads/music/f?size=1")[1] == "BucketNotFound"
    assert ask("POST", f"/uploads/films/f?size={2**49}")[1] == "NoDiskHasRoom"
    for wrong in ("../../etc", "x", "F" * 32, "0" * 32):
        assert ask("GET", f"/uploads/{quote(wrong, safe='')}")[1] == "UploadGone"
    begun = ask_node(cluster.nodes["a"], "POST", "/uploads/films/f?size=10").json()
    upload, digest = f"/uploads/{begun['id']}", blake3(b"12345").hexdigest()
    for query, body, refusal in (
        ("", with_digest(b"12345"), 400),
        ("?offset=-1", with_digest(b"12345"), 400),
        ("?offset=3", with_digest(b"12345"), "UploadPositionDiffers"),
        ("?offset=0", with_digest(b""), 400),
        ("?offset=0", with_digest(b"12345678901"), "BodyDiffers"),
        ("?offset=0", b"12345" + blake3(b"12346").digest(), "BodyDiffers"),
    ):
        assert refusal in ask("PUT", upload + query, body), (query, body)
    assert ask("POST", f"{upload}?size=10&blake3=7")[0] == 400
    assert ask("POST", f"{upload}?size=10&blake3={digest}")[1] == "UploadPositionDiffers"
    assert ask("DELETE", upload)[0] == 204
    assert ask("PUT", f"{upload}?offset=0", with_digest(b"1"))[0] == 410
    assert parts_of(cluster) == []


@pytest.mark.parametrize("late", ["part", "completion"])
def test_bytes_that_are_acknowledged_between_the_row_and_the_lock_of_a_late_request_stay(
    program: Client, cluster: StorageCluster, late: str
) -> None:
    node, first, second = cluster.nodes["a"], os.urandom(MIB), os.urandom(MIB)
    upload_id = ask_node(node, "POST", "/uploads/films/f").json()["id"]
    digest = blake3(first).digest()
    assert ask_node(node, "PUT", f"/uploads/{upload_id}?offset=0", first + digest).json()["received"] == MIB
    with closing(FaultyDatabase(cluster.catalogue.store.url)) as database, ThreadPoolExecutor() as pool:
        slow = StorageNode(database, "a", node.node.options, node.paths[0], SECRET, NoRings())
        slow.disks.refresh()
        held = database.hold_reply("get_resumable")
        requests = {
            "part": lambda: PartOfUpload.begin(slow, upload_id, MIB, MIB),
            "completion": lambda: carry_out(
                slow, complete(slow, upload_id, MIB, digest.hex(), FileAuditor(actor=UNNAMED))
            ),
        }
        request = pool.submit(requests[late])
        eventually(lambda: held.hits)
        body = second + blake3(second).digest()
        assert ask_node(node, "PUT", f"/uploads/{upload_id}?offset={MIB}", body).json()["received"] == 2 * MIB
        held.heal()
        with pytest.raises(UploadPositionDiffers):
            request.result(30)
    whole = blake3(first + second).hexdigest()
    assert ask_node(node, "POST", f"/uploads/{upload_id}?size={2 * MIB}&blake3={whole}").status_code == 201
    assert got(program) == first + second
