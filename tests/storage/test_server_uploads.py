"""Puts in parts by a server: what breaks between a client and the server, and what a server refuses.

What breaks behind the server is tested with both kinds of clients, see `test_resumable_uploads`.
"""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Iterator
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import httpx
import pytest
from blake3 import blake3

from peerd import Client, Right
from peerd.domain.file_errors import FileConditionFailed, QuotaExceeded, UploadBroken, UploadGone
from peerd.operate.remote.errors import ServerUnreachable, TokenRefused
from peerd.storage.put_options import PutOptions
from peerd.storage.uploading import sending, sources
from peerd.store.files import resumable_uploads, uploads
from peerd.store.files.buckets import get_bucket
from peerd.testing import eventually
from peerd.web.file_uploads import MOST_UPLOADS
from tests.storage.breaking import (
    ALL,
    MIB,
    breaking_server,
    got,
    interrupted,
    little_memory,
    parts_of,
    put,
    unfinished,
    with_digest,
)
from tests.storage.nodes import SECRET, StorageCluster
from tests.storage.object_cluster import Build
from tests.storage.test_server_files import slow_upload
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
    assert broken.relayed <= 9_000_000 + 3 * 1_500_000 + 20_000, "with the heads of all requests"
    assert got(program) == film.read_bytes()
    with breaking_server(address, secret, after=1_500_000, broken=3, method=b"PUT") as (broken, remote):
        assert put(remote, io.BytesIO(film.read_bytes()), "films/stream").size == 9_000_000
    assert broken.ended == 3
    assert got(program, "films/stream") == film.read_bytes()
    assert unfinished(cluster) == []


@pytest.mark.parametrize("of", ["a part", "the beginning", "the completion", "the list", "the abortion"])
def test_an_answer_that_is_lost_changes_nothing(
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
    found = cluster.catalogue.store.read(resumable_uploads.find_completed_version, upload_id)
    return None if found is None else found.id


def test_a_server_that_stays_away_ends_the_put_and_the_next_one_goes_on(
    address: str, secret: str, film: Path, program: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.slow
def test_a_server_that_has_no_place_is_asked_again(
    remote: Client, address: str, secret: str, film: Path, cluster: StorageCluster
) -> None:
    slow: list[socket.socket] = []
    begun: list[str] = []

    def is_full() -> bool:
        with httpx.Client(base_url=address + API, headers=bearer(secret)) as http:
            answer = http.get(f"/uploads/{begun[0]}")
        return answer.status_code == 503 and answer.json()["code"] == "TooManyUploads"

    def is_filled() -> bool:
        if is_full():
            return True
        slow.append(slow_upload(address, secret, len(slow)))  # the part that was being sent had a place, and has ended
        return False

    def close() -> None:
        for one in slow:
            one.close()

    ends = threading.Timer(1.0, close)

    def progress(done: int, _: int | None) -> None:
        if done >= 6 * MIB and not slow:
            begun.append(unfinished(cluster)[0].id)
            slow.extend(slow_upload(address, secret, number) for number in range(MOST_UPLOADS))
            eventually(is_filled)
            ends.start()

    try:
        stored = put(remote, film, progress=progress)
    finally:
        ends.join()
        close()
    assert version_of(cluster, begun[0]) == stored.id


@pytest.mark.slow
def test_the_memory_does_not_grow_with_the_file_or_its_parts(
    remote: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FILE_PART", 64 * MIB)
    large = tmp_path / "large"
    with large.open("wb") as opened:
        opened.truncate(200_000_000)
    with little_memory(40_000_000):
        assert put(remote, large).size == 200_000_000


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
    early = http.post(upload, params={"size": 3_000_000, "blake3": digest})
    assert (early.status_code, early.json()["code"]) == (409, "UploadPositionDiffers")
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
    assert http.put(upload, params={"offset": 0}, content=with_digest(b"x")).json()["code"] == "UploadGone"
    assert http.delete(upload).status_code == 404
    again = http.post("/uploads/films/a/b", headers=sent)
    assert (again.status_code, again.json()["code"]) == (409, "FileConditionFailed")
    assert got(program, "films/a/b") == content
    gone = begin(http)
    assert http.delete(f"/uploads/{gone}").status_code == 204
    assert http.get(f"/uploads/{gone}").status_code == 404
    assert unfinished(cluster) == []
    entries = [one for one in reversed(program.audit.page(limit=100).items) if one.target_kind is not None]
    shown = [(one.operation, one.target, one.actor, one.actor_kind, one.address) for one in entries]
    assert shown[-2:] == [
        ("files.put", "films/a/b", "studio", "token", "127.0.0.1"),
        ("files.uploads.abort", gone, "studio", "token", "127.0.0.1"),
    ]


def test_wrong_bytes_are_refused(http: httpx.Client, cluster: StorageCluster) -> None:
    upload = f"/uploads/{begin(http, size=10)}"

    def refusal(answer: httpx.Response) -> tuple[int, str]:
        return answer.status_code, answer.json()["code"]

    wrong = http.put(upload, params={"offset": 0}, content=b"12345" + blake3(b"12346").digest())
    assert refusal(wrong) == (422, "ContentDiffers")
    assert http.get(upload).json()["received"] == 0
    assert http.put(upload, params={"offset": 0}, content=with_digest(b"12345")).json()["received"] == 5
    apart = http.put(upload, params={"offset": 7}, content=with_digest(b"678"))
    assert refusal(apart) == (409, "UploadPositionDiffers")
    assert apart.json()["data"] == {"upload_id": upload.rpartition("/")[2], "offset": 7, "received": 5}
    assert refusal(http.put(upload, params={"offset": 5}, content=with_digest(b"678901"))) == (422, "ContentDiffers")
    assert http.put(upload, params={"offset": 5}, content=with_digest(b"67890")).json()["received"] == 10
    whole = http.post(upload, params={"size": 10, "blake3": blake3(b"1234567891").hexdigest()})
    assert refusal(whole) == (422, "ContentDiffers")
    assert refusal(http.get(upload)) == (404, "UploadGone")
    assert parts_of(cluster) == []
    assert unfinished(cluster) == []


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
    assert http.post("/uploads/music/f").json()["code"] == "BucketNotFound"
    assert http.post("/uploads/films/%ff").json()["detail"] == "key: it is not UTF-8"
    assert http.get("/uploads/films/%ff").json()["detail"] == "key: it is not UTF-8"
    for headers in (
        {"x-peerd-class": "x"},
        {"x-peerd-blake3": digest},
        {"if-match": '"x"'},
        {"x-peerd-expires-in": "soon"},
        {"x-peerd-meta-a": "a" * 9_000},
    ):
        assert http.post("/uploads/films/f", headers=headers).status_code in {404, 422}, headers
    assert http.post("/uploads/films/f", params={"size": 2**49}).json()["code"] == "NoNodeTakes"
    assert unfinished(cluster) == []
    for wrong in ("x", "F" * 32, "0" * 33, "0" * 31, "0" * 31 + "%0a", "..%2f..%2fetc"):
        for method in ("GET", "PUT", "POST", "DELETE"):
            assert http.request(method, f"/uploads/{wrong}", params={"offset": 0}).status_code in {404, 405, 422}, wrong
    upload = f"/uploads/{begin(http, size=10)}"
    for offset in (None, "x", "-1", str(2**51), "0x1"):
        query = {} if offset is None else {"offset": offset}
        assert http.put(upload, params=query, content=with_digest(b"12345")).status_code == 422, offset
    for body in (b"", b"12345", with_digest(b""), iter([with_digest(b"12345")])):
        assert http.put(upload, params={"offset": 0}, content=body).json()["field"] == "content-length"
    no_digest, negative, no_size = {"size": 10, "blake3": "7"}, {"size": -1, "blake3": digest}, {"blake3": digest}
    wrong_ones: list[dict[str, Any]] = [{"size": 10}, no_digest, negative, no_size]
    for one in wrong_ones:
        assert http.post(upload, params=one).status_code == 422, one
    assert http.get(upload).json()["received"] == 0
    host, _, port = str(http.base_url.netloc.decode()).partition(":")
    with socket.create_connection((host, int(port))) as short:
        head = f"PUT {API}{upload}?offset=0 HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: 37\r\n"
        short.sendall(f"{head}authorization: {http.headers['authorization']}\r\n\r\n".encode() + b"12345")
    eventually(lambda: http.put(upload, params={"offset": 0}, content=with_digest(b"12345")).status_code == 200)
    assert http.get(upload).json()["received"] == 5, "of the body that ended too soon nothing counts"


def test_a_token_without_the_right_gets_nothing_and_learns_nothing(
    program: Client, address: str, film: Path, cluster: StorageCluster
) -> None:
    interrupted(program, cluster, film, path="films/2026/f")
    [open_one] = unfinished(cluster)
    program.buckets.create("music")
    completed = begin_and_complete(program, address)
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "", {}),
        ("PUT", f"?offset={4 * MIB}", {"content": with_digest(b"x")}),
        ("POST", f"?size={4 * MIB}&blake3={'0' * 64}", {}),
        ("DELETE", "", {}),
    ]

    def answers(http: httpx.Client, upload_id: str) -> list[tuple[int, str]]:
        sent = [http.request(method, f"/uploads/{upload_id}{query}", **more) for method, query, more in requests]
        return [(answer.status_code, answer.text.replace(upload_id, "ID")) for answer in sent]

    def of(*rights: Right, **more: Any) -> httpx.Client:
        secret = program.tokens.create("t", rights, **more).secret
        return httpx.Client(base_url=address + API, headers=bearer(secret))

    for scope in ("music", "films/2025/", "films/2026/g"):
        with of(READ, WRITE, file_scopes=[scope]) as other:
            of_none = answers(other, NONE)
            assert [status for status, _ in of_none] == [404] * 4
            assert answers(other, open_one.id) == answers(other, completed) == of_none
            for method in ("GET", "POST"):
                answer = other.request(method, "/uploads/films/2026/f")
                assert (answer.status_code, answer.json()["code"]) == (403, "NotPermitted")
    with of(*({*Right} - {WRITE})) as reads:
        for upload_id in (open_one.id, completed, NONE):
            assert {(status, "write-files" in text) for status, text in answers(reads, upload_id)} == {(403, True)}
        assert reads.get("/uploads/films/2026/f").status_code == 403
        assert reads.post("/uploads/films/2026/f").status_code == 403
    with httpx.Client(base_url=address + API) as stranger:
        assert {status for status, _ in answers(stranger, open_one.id)} == {401}
    assert unfinished(cluster) == [open_one]
    with of(WRITE, file_scopes=["films/2026/"]) as mine:
        assert mine.get(f"/uploads/{open_one.id}").json()["received"] == 4 * MIB
        assert mine.delete(f"/uploads/{open_one.id}").status_code == 204
    refused = {entry.operation for entry in program.audit.page(limit=100).items if entry.outcome == "refused"}
    names = ("of_key", "begin", "show", "send", "complete", "abort")
    assert {f"files.uploads.{name}" for name in names} <= refused
    with Client(address, token="peerd_unknown") as unknown, pytest.raises(TokenRefused):
        put(unknown, film)


def begin_and_complete(program: Client, address: str) -> str:
    """An upload that has become a file of the bucket `films`."""
    secret = program.tokens.create("all", [WRITE]).secret
    with httpx.Client(base_url=address + API, headers=bearer(secret)) as http:
        upload_id = begin(http, "films/done")
        http.put(f"/uploads/{upload_id}", params={"offset": 0}, content=with_digest(b"done"))
        query: dict[str, Any] = {"size": 4, "blake3": blake3(b"done").hexdigest()}
        assert http.post(f"/uploads/{upload_id}", params=query).status_code == 201
    return upload_id


def test_an_error_of_the_end_is_that_of_a_client_of_the_database_and_leaves_nothing(
    remote: Client, program: Client, film: Path, cluster: StorageCluster
) -> None:
    content = b"1234567890"
    transfer = remote._mode.open_transfer()

    def all_but_completed(options: PutOptions) -> Any:
        requests = transfer.uploads("films", "f", options)
        upload = requests.begin(10, "me-1")
        assert requests.send(upload, 0, 10, iter([with_digest(content)])) == 10
        return lambda: requests.complete(upload, 10, blake3(content).hexdigest())

    complete = all_but_completed(PutOptions())
    program.buckets.change("films", quota=5)
    with pytest.raises(QuotaExceeded, match="raise the quota"):
        complete()
    program.buckets.change("films", no_quota=True)
    complete = all_but_completed(PutOptions(only_new=True))
    program.files.put(io.BytesIO(b"faster"), "films/f")
    with pytest.raises(FileConditionFailed):
        complete()
    with pytest.raises(UploadGone):
        complete()
    transfer.close()
    assert unfinished(cluster) == []
    assert parts_of(cluster) == []
    assert got(remote) == b"faster"


def test_a_file_is_one_body_where_all_disks_are_object_stores(
    build: Build, moto: ObjectStoreServer, film: Path
) -> None:
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
    program.database.run(uploads.begin_upload, bucket, of_s3)
    for completed in (False, True):
        if completed:
            program.database.run(uploads.complete_upload, of_s3.id, f"{'0' * 32}-3")
        assert http.get("/uploads/films/f").json() == []
        assert http.get(f"/uploads/{of_s3.id}").json()["code"] == "UploadGone"
        put_part = http.put(f"/uploads/{of_s3.id}", params={"offset": 0}, content=with_digest(b"x"))
        assert put_part.json()["code"] == "UploadGone"
        query: dict[str, Any] = {"size": 1, "blake3": "0" * 64}
        assert http.post(f"/uploads/{of_s3.id}", params=query).json()["code"] == "UploadGone"
