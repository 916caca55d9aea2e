"""Puts in parts by a server: what breaks between a client and the server, and what a server refuses.

What breaks behind the server is tested with both kinds of clients, see `test_resumable_uploads`.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from blake3 import blake3

from peerd import Client, Right
from peerd.domain.file_errors import UploadBroken
from peerd.operate.remote.errors import ServerUnreachable
from peerd.storage.uploading import sending
from peerd.store.files import uploads
from peerd.store.files.buckets import get_bucket
from peerd.testing import eventually
from peerd.web import file_uploads
from peerd.web.file_uploads import MOST_UPLOADS, UploadSource
from tests.storage.breaking import ALL, MIB, breaking_server, got, interrupted, parts_of, put, unfinished, with_digest
from tests.storage.nodes import SECRET, StorageCluster
from tests.storage.object_cluster import Build
from tests.support.object_store import ObjectStoreServer
from tests.web.access_world import API, bearer, serving

pytestmark = pytest.mark.usefixtures("small_parts")
READ, WRITE = Right.READ_FILES, Right.WRITE_FILES
NONE = "0" * 32
"""The id of no upload."""


@pytest.fixture
def http(address: str, secret: str) -> Iterator[httpx.Client]:
    """Any client of HTTP."""
    with httpx.Client(base_url=address + API, headers=bearer(secret)) as http:
        yield http


def test_a_connection_that_breaks_in_a_part_costs_no_more_than_this_part(
    address: str, secret: str, film: Path, cluster: StorageCluster, program: Client
) -> None:
    seen = [0]
    with breaking_server(address, secret, after=1_500_000, broken=3, method=b"PUT") as (broken, remote):
        assert put(remote, film, progress=lambda done, size: seen.append(done)).version == 1
    assert broken.ended == 3
    again = sum(max(0, after - before) for before, after in pairwise(seen)) - 9_000_000
    assert 0 < again <= 3 * 2 * MIB, "what was durable is not sent again"
    assert got(program) == film.read_bytes()
    assert unfinished(cluster) == []


@pytest.mark.parametrize("of", ["a part", "the beginning", "the completion", "the list", "the abortion"])
def test_a_lost_answer_changes_nothing(
    of: str,
    address: str,
    secret: str,
    film: Path,
    cluster: StorageCluster,
    program: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("peerd.storage.transfer.node_http.MAX_IDLE", 0)  # each request has a connection of its own
    method = {"a part": b"PUT", "the list": b"GET", "the abortion": b"DELETE"}.get(of, b"POST")
    interrupted(program, cluster, film, only_new=True)
    if of != "the completion":
        film.write_bytes(film.read_bytes()[:-1])  # so that the upload that was interrupted is aborted, by a DELETE
    with breaking_server(address, secret, broken=1, answers=repeat(0), method=method) as (broken, remote):
        assert put(remote, film, only_new=True).version == 1
    assert broken.ended == 1
    assert got(program) == film.read_bytes()
    assert unfinished(cluster) == []


def test_a_server_that_is_away_sends_no_file_to_another_node(
    address: str, secret: str, film: Path, cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "ELSEWHERE_AFTER", 0.1)
    begun: list[str] = []
    with breaking_server(address, secret, after=0, broken=0) as (broken, remote):
        back = threading.Timer(1.5, broken.break_next, (0,))

        def progress(done: int, _: int | None) -> None:
            if done > 5 * MIB and not begun:
                begun.append(unfinished(cluster)[0].id)
                broken.break_next(ALL)
                back.start()

        stored = put(remote, film, progress=progress)
        back.join()
    assert broken.ended > 3
    assert version_of(cluster, begun[0]) == stored.id, "it went on with the same upload"


def version_of(cluster: StorageCluster, upload_id: str) -> int | None:
    """The version that an upload has become."""
    found = cluster.catalogue.store.read(uploads.find_completed_version, upload_id)
    return None if found is None else found.id


def test_a_server_that_stays_away_ends_the_put_and_the_next_one_goes_on(
    address: str, secret: str, film: Path, program: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.storage.transfer.node_http.MAX_IDLE", 0)  # none is left from before the server is away
    with breaking_server(address, secret, after=0, broken=0) as (broken, remote):

        def progress(done: int, _: int | None) -> None:
            if done > 5 * MIB:
                broken.break_next(ALL)

        with monkeypatch.context() as patched:
            patched.setattr(sending, "GIVEN_UP_AFTER", 0.3)
            with pytest.raises(UploadBroken, match="put it again"):
                put(remote, film, progress=progress)
        with pytest.raises(ServerUnreachable):
            put(remote, film)
        broken.break_next(0)
        seen: list[int] = []
        put(remote, film, progress=lambda done, size: seen.append(done))
    assert seen[0] >= 4 * MIB
    assert got(program) == film.read_bytes()


def test_a_put_goes_on_when_the_process_that_relays_a_part_ends(secret: str, film: Path, program: Client) -> None:
    is_within, has_ended = threading.Event(), threading.Event()

    def progress(done: int, _: int | None) -> None:
        if done > 3 * MIB and not has_ended.is_set():
            is_within.set()
            assert has_ended.wait(30)

    with serving(program) as successor, ThreadPoolExecutor(1) as threads, ExitStack() as opened:
        with serving(program) as ending:
            relay, remote = opened.enter_context(breaking_server(ending, secret, broken=0))
            putting = threads.submit(put, remote, film, progress=progress)
            assert is_within.wait(30)
            relay.lead_to(successor)
        has_ended.set()
        assert putting.result().blake3 == blake3(film.read_bytes()).hexdigest()
    assert got(program) == film.read_bytes()


@pytest.mark.slow
def test_a_server_that_has_no_place_is_asked_again(
    remote: Client, film: Path, cluster: StorageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    ends = threading.Timer(1.0, monkeypatch.setattr, ("peerd.web.file_uploads.MOST_UPLOADS", MOST_UPLOADS))

    def progress(done: int, _: int | None) -> None:
        if done >= 6 * MIB and not begun:
            begun.append(unfinished(cluster)[0].id)
            monkeypatch.setattr("peerd.web.file_uploads.MOST_UPLOADS", 0)
            ends.start()

    stored = put(remote, film, progress=progress)
    ends.join()
    assert version_of(cluster, begun[0]) == stored.id


def begin(http: httpx.Client, path: str = "films/f", **query: Any) -> str:
    """Begin an upload; its id."""
    begun = http.post(f"/uploads/{path}", params=query)
    assert begun.status_code == 201, begun.text
    return str(begun.json()["id"])


def test_any_client_of_http_puts_in_parts(http: httpx.Client, cluster: StorageCluster, program: Client) -> None:
    content = os.urandom(3_000_000)
    digest = blake3(content).hexdigest()
    sent = {"content-type": "text/plain", "x-peerd-meta-take": "3", "if-none-match": "*"}
    begun = http.post("/uploads/films/a/b", params={"size": 3_000_000, "source": "mine-7"}, headers=sent)
    assert begun.json() == {"id": begun.json()["id"], "received": 0, "file": None}
    upload = f"/uploads/{begun.json()['id']}"
    first = http.put(upload, params={"offset": 0}, content=with_digest(content[:2_000_000]))
    assert first.json()["received"] == 2_000_000
    listed = {"id": begun.json()["id"], "received": 2_000_000, "source": "mine-7", "is_lost": False}
    assert http.get("/uploads/films/a/b").json() == [listed]
    assert http.get("/uploads/films/a").json() == []
    http.put(upload, params={"offset": 2_000_000}, content=with_digest(content[2_000_000:]))
    done = http.post(upload, params={"size": 3_000_000, "blake3": digest})
    assert (done.status_code, done.json()["received"]) == (201, 3_000_000)
    file = done.json()["file"]
    assert (file["blake3"], file["content_type"], file["metadata"]) == (digest, "text/plain", {"take": "3"})
    assert file["id"].isdigit(), "a text, since JavaScript cannot hold it as a number"
    repeated = http.post(upload, params={"size": 3_000_000, "blake3": digest})
    assert (repeated.status_code, repeated.json()) == (201, done.json())
    assert http.get(upload).json()["file"] == file
    other = http.post(upload, params={"size": 3_000_000, "blake3": "0" * 64})
    assert (other.status_code, other.json()["code"]) == (422, "ContentDiffers")
    again = http.post("/uploads/films/a/b", headers=sent)
    assert (again.status_code, again.json()["code"]) == (412, "FileConditionFailed")
    assert got(program, "films/a/b") == content
    gone = begin(http)
    assert http.delete(f"/uploads/{gone}").status_code == 204
    assert http.get(f"/uploads/{gone}").status_code == 404
    assert unfinished(cluster) == []
    entry = next(one for one in program.audit.page(limit=100).items if one.operation == "files.uploads.abort")
    assert (entry.target, entry.actor, entry.actor_kind, entry.address) == (gone, "studio", "token", "127.0.0.1")


def test_wrong_bytes_are_refused(http: httpx.Client, cluster: StorageCluster) -> None:
    upload = f"/uploads/{begin(http, size=10)}"

    def sent(offset: int, body: bytes) -> tuple[int, Any]:
        answer = http.put(upload, params={"offset": offset}, content=body)
        return answer.status_code, answer.json()

    def is_refused(answer: tuple[int, Any], status: int, code: str) -> bool:
        return (answer[0], answer[1]["code"]) == (status, code)

    assert is_refused(sent(0, b"12345" + blake3(b"12346").digest()), 422, "ContentDiffers")
    assert sent(0, with_digest(b"12345"))[1]["received"] == 5
    apart = sent(7, with_digest(b"678"))
    assert is_refused(apart, 409, "UploadPositionDiffers")
    assert apart[1]["data"] == {"upload_id": upload.rpartition("/")[2], "offset": 7, "received": 5}
    assert is_refused(sent(5, with_digest(b"678901")), 422, "ContentDiffers")
    assert sent(5, with_digest(b"67890"))[1]["received"] == 10
    whole = http.post(upload, params={"size": 10, "blake3": blake3(b"1234567891").hexdigest()})
    assert is_refused((whole.status_code, whole.json()), 422, "ContentDiffers")
    assert http.get(upload).status_code == 404
    assert (parts_of(cluster), unfinished(cluster)) == ([], [])


def test_garbage_is_refused_at_the_door(http: httpx.Client, cluster: StorageCluster) -> None:
    digest = blake3(b"").hexdigest()
    for query in (
        *({"size": size} for size in ("x", "-1", str(2**51), "1e3", "", "٣")),
        *({"source": source} for source in ("", "../x", "A", "a" * 101, "a\n")),
        *({"instead_of": upload} for upload in ("", "x", "F" * 32, "0" * 33)),
        {"offset": "3"},
    ):
        assert http.post("/uploads/films/f", params=query).status_code == 422, query
    assert http.post("/uploads/films/f", params={"instead_of": NONE}).json()["code"] == "UploadGone"
    for method in ("GET", "POST"):
        assert http.request(method, "/uploads/films/%ff").json()["detail"] == "key: it is not UTF-8"
    for name, value in (("class", "x"), ("blake3", digest), ("expires-in", "soon"), ("meta-a", "a" * 9_000)):
        assert http.post("/uploads/films/f", headers={f"x-peerd-{name}": value}).status_code in {404, 422}, name
    assert http.post("/uploads/films/f", headers={"if-match": '"x"'}).status_code == 422
    assert http.post("/uploads/films/f", params={"size": 2**49}).json()["code"] == "NoNodeTakes"
    assert unfinished(cluster) == []
    for wrong in ("x", "F" * 32, "0" * 33, "0" * 31 + "%0a", "..%2f..%2fetc"):
        for method in ("GET", "PUT", "POST", "DELETE"):
            assert http.request(method, f"/uploads/{wrong}", params={"offset": 0}).status_code in {404, 405, 422}, wrong
    upload = f"/uploads/{begin(http, size=10)}"
    for offset in ("x", "-1", str(2**51)):
        assert http.put(upload, params={"offset": offset}, content=with_digest(b"12345")).status_code == 422, offset
    for body in (b"12345", with_digest(b""), iter([with_digest(b"12345")])):
        assert http.put(upload, params={"offset": 0}, content=body).json()["field"] == "content-length"
    wrong_ends: list[dict[str, Any]] = [{"size": 10}, {"size": 10, "blake3": "7"}, {"size": -1, "blake3": digest}]
    for one in wrong_ends:
        assert http.post(upload, params=one).status_code == 422, one
    host, _, port = str(http.base_url.netloc.decode()).partition(":")
    with socket.create_connection((host, int(port))) as short:
        head = f"PUT {API}{upload}?offset=0 HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: 37\r\n"
        short.sendall(f"{head}authorization: {http.headers['authorization']}\r\n\r\n".encode() + b"12345")
    eventually(lambda: http.put(upload, params={"offset": 0}, content=with_digest(b"12345")).status_code == 200)
    assert http.get(upload).json()["received"] == 5, "of the body that ended too soon nothing counts"


def test_a_token_of_other_files_gets_nothing_and_learns_nothing(
    program: Client, address: str, http: httpx.Client, film: Path, cluster: StorageCluster
) -> None:
    interrupted(program, cluster, film, path="films/2026/f")
    [open_one] = unfinished(cluster)
    completed = begin(http, "films/done")
    http.put(f"/uploads/{completed}", params={"offset": 0}, content=with_digest(b"done"))
    http.post(f"/uploads/{completed}", params={"size": 4, "blake3": blake3(b"done").hexdigest()}).raise_for_status()

    def answers(client: httpx.Client, upload_id: str) -> list[tuple[int, str]]:
        sent = [
            client.get(f"/uploads/{upload_id}"),
            client.put(f"/uploads/{upload_id}", params={"offset": 4 * MIB}, content=with_digest(b"x")),
            client.post(f"/uploads/{upload_id}", params={"size": 4 * MIB, "blake3": "0" * 64}),
            client.delete(f"/uploads/{upload_id}"),
        ]
        return [(answer.status_code, answer.text.replace(upload_id, "ID")) for answer in sent]

    def of(scope: str) -> httpx.Client:
        made = program.tokens.create("t", [READ, WRITE], file_scopes=[scope])
        return httpx.Client(base_url=address + API, headers=bearer(made.secret))

    for scope in ("music", "films/2026/g"):
        with of(scope) as other:
            of_none = answers(other, NONE)
            assert [status for status, _ in of_none] == [404] * 4
            assert answers(other, open_one.id) == answers(other, completed) == of_none
            for method in ("GET", "POST"):
                answer = other.request(method, "/uploads/films/2026/f")
                assert (answer.status_code, answer.json()["code"]) == (403, "NotPermitted")
    assert unfinished(cluster) == [open_one]
    with of("films/2026/") as mine:
        assert mine.get(f"/uploads/{open_one.id}").json()["received"] == 4 * MIB
        assert mine.delete(f"/uploads/{open_one.id}").status_code == 204
    refused = {entry.operation for entry in program.audit.page(limit=100).items if entry.outcome == "refused"}
    assert {"files.uploads.of_key", "files.uploads.begin"} <= refused


def test_a_file_is_one_body_where_disks_are_object_stores(build: Build, moto: ObjectStoreServer, film: Path) -> None:
    cluster = build(moto.options(), stores="a")
    with Client(cluster.catalogue.store, secret=SECRET) as program:
        secret = program.tokens.create("studio", [READ, WRITE]).secret
        with serving(program) as address, Client(address, token=secret) as remote:
            assert put(remote, film).size == 9_000_000
            assert put(remote, io.BytesIO(film.read_bytes()), "films/g").size == 9_000_000
            assert got(remote) == got(remote, "films/g") == film.read_bytes()
    assert unfinished(cluster) == []


def test_an_upload_of_s3_is_none_of_these(http: httpx.Client, program: Client, cluster: StorageCluster) -> None:
    of_s3 = uploads.NewUpload(id="ab" * 16, key="f", disk_id=cluster.nodes["a"].disk, class_name="default")
    bucket = program.database.read(get_bucket, "films")
    program.database.run(uploads.enter_upload, bucket, of_s3)
    for completed in (False, True):
        if completed:
            program.database.run(uploads.complete_upload, of_s3.id, f"{'0' * 32}-3")
        assert http.get("/uploads/films/f").json() == []
        assert http.get(f"/uploads/{of_s3.id}").json()["code"] == "UploadGone"
        put_part = http.put(f"/uploads/{of_s3.id}", params={"offset": 0}, content=with_digest(b"x"))
        assert put_part.json()["code"] == "UploadGone"
        query: dict[str, Any] = {"size": 1, "blake3": "0" * 64}
        assert http.post(f"/uploads/{of_s3.id}", params=query).json()["code"] == "UploadGone"


def begin_slowly(address: str, secret: str, stack: ExitStack, key: str) -> socket.socket:
    """A put whose client sends nothing more than one byte."""
    host, port = address.removeprefix("http://").split(":")
    slow = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
    head = f"PUT {API}/files/films/{key} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {secret}\r\n"
    slow.sendall(f"{head}content-length: 1000000\r\n\r\nx".encode())
    return slow


def test_slow_puts_of_one_token_leave_places_for_others(http: httpx.Client, address: str, program: Client) -> None:
    slow_token = program.tokens.create("slow", [WRITE]).secret
    with ExitStack() as stack:
        slow = [begin_slowly(address, slow_token, stack, f"{number}") for number in range(MOST_UPLOADS + 4)]

        def refused() -> int:
            return len(select.select(slow, [], [], 0)[0])

        eventually(lambda: refused() == len(slow) - MOST_UPLOADS // 2, 30)
        assert {one.recv(12) for one in select.select(slow, [], [], 0)[0]} == {b"HTTP/1.1 503"}
        assert http.put("/files/films/quick", content=b"quick").status_code == 201


async def test_what_a_slow_client_has_sent_is_sent_on_before_a_node_gives_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_uploads, "GATHERED_FOR", 0.0)
    goes_on = asyncio.Event()

    async def stream() -> AsyncIterator[bytes]:
        yield b"first"
        await goes_on.wait()
        yield b"second"

    source = UploadSource(cast("Any", SimpleNamespace(stream=stream)), asyncio.get_running_loop())
    assert await asyncio.to_thread(source.read, MIB) == b"first"
    goes_on.set()
    assert [await asyncio.to_thread(source.read, MIB) for _ in range(2)] == [b"second", b""]


def test_a_put_that_arrives_too_slowly_is_aborted(
    address: str, secret: str, program: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_uploads, "SLOWEST", 2**40)
    monkeypatch.setattr(file_uploads, "PATIENCE", 0.2)
    with ExitStack() as stack:
        slow = begin_slowly(address, secret, stack, "slow")
        answer = b"".join(iter(lambda: slow.recv(65_536), b"")).lower()
    assert b" 503 " in answer.splitlines()[0]
    assert b"connection: close" in answer
    assert b"less than" in answer
    assert program.files.list("films").files == []
