"""Contents by a server: what breaks between a client and the server, what tokens may do, and what a server refuses.

What clients of a server have in common with those of the database is tested with both, see `test_client`.
"""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from blake3 import blake3

from peerd import Client, NotPermitted, Right
from peerd.domain.errors import InvalidAccess
from peerd.domain.file_errors import ContentDiffers, UploadBroken
from peerd.testing import eventually
from peerd.web import downloads
from tests.storage.breaking import Relay, breaking_server, got, parts_of
from tests.storage.nodes import StorageCluster
from tests.web.access_world import API, bearer

READ, WRITE, VIEW = Right.READ_FILES, Right.WRITE_FILES, Right.VIEW
pytestmark = pytest.mark.usefixtures("short_pauses")


def test_a_token_reads_and_writes_the_files_of_its_scopes(program: Client, address: str, film: Path) -> None:
    def of(*rights: Right, **more: Any) -> Client:
        return Client(address, token=program.tokens.create("t", rights, **more).secret)

    program.files.put(film, "films/2026/a")
    program.files.put(film, "films/b")
    out = io.BytesIO()
    with of(WRITE) as writes, of(READ, WRITE, file_scopes=["films/2026/"]) as some:
        for not_read in (lambda: writes.files.get("films/b", out), lambda: writes.files.open("films/b")):
            with pytest.raises(NotPermitted, match="it needs the right read-files"):
                not_read()
        some.files.get("films/2026/a", io.BytesIO())
        some.files.put(film, "films/2026/c")
        some.files.move("films/2026/c", "films/2026/d")
        assert len(some.files.list("films", "2026/").files) == 2
        refused: tuple[Callable[[], object], ...] = (
            lambda: some.files.get("films/b", out),
            lambda: some.files.put(film, "films/b"),
            lambda: some.files.list("films"),
            lambda: some.files.list("films", "20"),
            lambda: some.files.move("films/2026/d", "films/d"),
            lambda: some.files.move("films/b", "films/2026/b"),
            lambda: some.files.remove("films/b"),
            lambda: some.files.remove_below("films", ""),
        )
        for act in refused:
            with pytest.raises(NotPermitted, match="is none of its files"):
                act()
    assert out.getvalue() == b""
    for restriction in ({"queues": ["video"], "file_scopes": ["films"]}, {"file_scopes": ["films"]}):
        with of(VIEW, READ, **restriction) as viewer, pytest.raises(NotPermitted):
            viewer.files.at_risk()
    for rights, more in (
        ([READ], {"queues": ["video"]}),
        ([VIEW], {"file_scopes": ["films"]}),
        ([READ, Right.ADMIN], {"file_scopes": ["films"]}),
        ([READ], {"file_scopes": ["NO"]}),
        ([READ], {"file_scopes": []}),
    ):
        with pytest.raises(InvalidAccess):
            program.tokens.create("t", rights, **more)
    entries = program.audit.page(limit=100).items
    assert {"files.put", "files.remove", "files.stat"} <= {one.operation for one in entries if one.outcome == "refused"}


def test_an_upload_that_breaks_is_sent_again(address: str, secret: str, program: Client, film: Path) -> None:
    with breaking_server(address, secret, after=3_000_000, broken=2, method=b"PUT") as (relay, remote):
        assert remote.files.put(film, "films/f").version == 1
        assert relay.ended == 2
    assert got(program) == film.read_bytes()
    with breaking_server(address, secret, answers=repeat(0), broken=1, method=b"PUT") as (relay, remote):
        assert remote.files.put(film, "films/g", only_new=True).version == 1
        assert relay.ended == 1


def test_an_upload_that_breaks_names_the_remedy(
    address: str, secret: str, program: Client, film: Path, cluster: StorageCluster
) -> None:
    with breaking_server(address, secret, after=3_000_000, method=b"PUT") as (_, remote):
        for source in (film, io.BytesIO(film.read_bytes())):
            with pytest.raises(UploadBroken, match=r"it was sent 4 times; put it again"):
                remote.files.put(source, "films/f")
        with pytest.raises(UploadBroken, match="can be read once only: put it again from a file"):
            remote.files.put(io.BytesIO(film.read_bytes()), "films/f", parts_above=None)
    assert program.files.list("films").files == []
    eventually(lambda: parts_of(cluster) == [])
    assert [node.contents() for node in cluster.nodes.values()] == [[], [], []]


def test_a_download_goes_on_and_damage_is_found(
    remote: Client, address: str, program: Client, film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = program.files.put(film, "films/f")
    make = remote._mode.open_transfer

    def transfer_at(relay: Relay) -> None:
        """Let transfers go by the relay; operations go to the server itself."""

        def open_transfer() -> Any:
            transfer: Any = make()
            transfer.upstream.url = relay.url
            return transfer

        monkeypatch.setattr(remote._mode, "open_transfer", open_transfer)

    with Relay(address, answers=repeat(4_000_000)) as relay:
        transfer_at(relay)
        assert remote.files.get("films/f", tmp_path / "got") == put
        assert relay.ended >= 2
    assert (tmp_path / "got").read_bytes() == film.read_bytes()
    with Relay(address, damages=True) as relay:
        transfer_at(relay)
        with pytest.raises(ContentDiffers):
            remote.files.get("films/f", tmp_path / "damaged")
    assert not (tmp_path / "damaged").exists()


def test_any_client_of_http_puts_and_gets(address: str, secret: str, program: Client) -> None:
    content = os.urandom(5_000_000)
    with httpx.Client(base_url=address + API, headers=bearer(secret)) as http:
        reads = bearer(program.tokens.create("reads", [READ]).secret)
        refused = http.put("/files/films/f", content=b"x" * 15_000_000, headers=reads)
        assert (refused.status_code, refused.json()["code"]) == (403, "NotPermitted")
        digest = blake3(content).hexdigest().upper()
        sent = {"content-type": "text/html", "x-peerd-blake3": digest, "x-peerd-meta-take": "3"}
        put = http.put("/files/films/a/b.html", content=content, headers=sent)
        assert (put.status_code, put.json()["size"], put.json()["metadata"]) == (201, 5_000_000, {"take": "3"})
        assert put.json()["id"].isdigit(), "a text, since JavaScript cannot hold it as a number"
        got = http.get("/files/films/a/b.html")
        assert (got.status_code, got.content) == (200, content)
        assert got.headers["x-peerd-meta-take"] == "3"
        assert got.headers["content-disposition"] == "attachment"
        assert got.headers["content-security-policy"].startswith("sandbox"), "it runs with no rights of the site"
        assert got.headers["x-content-type-options"] == "nosniff"
        part = http.get("/files/films/a/b.html", headers={"range": "bytes=4194300-4194309"})
        assert (part.status_code, part.content) == (206, content[4194300:4194310])
        assert part.headers["content-range"] == "bytes 4194300-4194309/5000000"
        for status, name, value in (
            (416, "range", "bytes=5000000-"),
            (304, "if-none-match", got.headers["etag"]),
            (412, "if-match", '"other"'),
        ):
            assert http.get("/files/films/a/b.html", headers={name: value}).status_code == status
        streamed = http.put("/files/films/chunked", content=iter([b"a" * 100_000] * 30))
        assert streamed.json()["size"] == 3_000_000
        wrong = http.put("/files/films/wrong", content=b"x", headers={"x-peerd-blake3": "0" * 64})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "ContentDiffers")
        again = http.put("/files/films/chunked", content=b"x", headers={"if-none-match": "*"})
        assert (again.status_code, again.json()["code"]) == (412, "FileConditionFailed")
        before = got.headers["last-modified"]
        conditions = [("if-match", '"a"'), ("if-none-match", '"*"'), ("if-unmodified-since", before)]
        others = ("x-peerd-expires-in", "100000000d"), ("content-range", "bytes 5-9/10")
        for name, value in (*conditions, *others):
            assert http.put("/files/films/x", content=b"", headers={name: value}).status_code == 422
        for name, value in conditions:
            assert http.delete("/files/films/a/b.html", headers={name: value}).status_code == 422
        for key in ("%ff", "%ef%bf%bd%ff"):
            assert http.put(f"/files/films/{key}", content=b"").json()["detail"] == "key: it is not UTF-8"
        for key in ("li\nne", "line\n", "\ufffd"):
            feed = f"/files/films/{quote(key)}"
            assert http.put(feed, content=b"x").json().get("key") == key
            assert http.get(feed).content == b"x"
            assert http.delete(feed).status_code == 204
        raw = HTTPConnection(address.removeprefix("http://"))
        raw.request("PUT", f"{API}/files/films/a%zz", b"", bearer(secret))  # httpx would send %25zz
        assert raw.getresponse().status == 422
        raw.close()
        assert [http.delete("/files/films/chunked").status_code for _ in range(2)] == [204, 404]
    assert [one.key for one in program.files.list("films").files] == ["a/b.html"]


def test_a_node_gives_the_bytes_of_a_range_and_no_more(
    address: str, secret: str, program: Client, cluster: StorageCluster
) -> None:
    content = os.urandom(5_000_000)
    program.files.put(io.BytesIO(content), "films/f")

    def sent() -> float:
        samples = chain.from_iterable(served.node.metrics.samples() for served in cluster.nodes.values())
        return sum(one.value for one in samples if one.name == "peerd_storage_sent_bytes_total")

    eventually(sent)  # the answer to the put
    before = sent()
    with httpx.Client(base_url=address + API, headers=bearer(secret)) as http:
        for start in (0, 4_194_300):
            part = http.get("/files/films/f", headers={"range": f"bytes={start}-{start + 9}"})
            assert (part.status_code, part.content) == (206, content[start : start + 10])
    eventually(lambda: sent() >= before + 20)
    assert sent() == before + 20


def test_what_needs_no_node_is_answered_while_all_downloads_wait_for_one(
    address: str, secret: str, program: Client
) -> None:
    program.files.put(io.BytesIO(b"content"), "films/f")
    goes_on = threading.Event()
    waiting = [downloads._readers.submit(goes_on.wait, 60.0) for _ in range(downloads.READERS)]
    try:
        with httpx.Client(base_url=address + API, headers=bearer(secret)) as http:
            assert http.head("/files/films/f").status_code == 200
            assert http.get("/files/films/f", headers={"if-none-match": "*"}).status_code == 304
    finally:
        goes_on.set()
    assert all(one.result() for one in waiting)


def test_more_uploads_than_places_are_put_off(
    program: Client, address: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.web.file_uploads.MOST_UPLOADS", 1)
    host, _, port = address.removeprefix("http://").partition(":")
    head = f"PUT {API}/files/films/slow HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {secret}\r\n"
    head += "expect: 100-continue\r\ncontent-length: 1000\r\n\r\n"
    with httpx.Client(base_url=address + API, headers=bearer(secret)) as http:

        def refusal() -> httpx.Response | None:
            answer = http.put("/files/films/probe", content=b"x")
            return answer if answer.status_code == 503 and answer.json()["code"] == "TooManyUploads" else None

        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(head.encode())
            assert slow.recv(100).startswith(b"HTTP/1.1 100"), "it has the place: its body is read"
            slow.sendall(b"x")
            refused = refusal()
            assert refused is not None
            assert refused.headers["retry-after"] == "2"
        eventually(lambda: refusal() is None)
    assert program.files.list("films", "slow").files == [], "what was aborted is not there"


def test_what_clients_do_is_in_the_audit_log(
    remote: Client, program: Client, cluster: StorageCluster, film: Path
) -> None:
    remote.files.put(film, "films/a")
    remote.files.put(io.BytesIO(b"two"), "films/a")
    remote.files.move("films/a", "films/b")
    remote.files.remove("films/b")
    program.files.put(film, "films/c")
    cluster.run_tasks()
    entries = [one for one in reversed(program.audit.page(limit=100).items) if one.target_kind == "file"]
    assert [(one.operation, one.target, one.actor, one.actor_kind, one.way) for one in entries] == [
        ("files.put", "films/a", "studio", "token", "api"),
        ("files.put", "films/a", "studio", "token", "api"),
        ("files.move", "films/a", "studio", "token", "api"),
        ("files.remove", "films/b", "studio", "token", "api"),
        ("files.put", "films/c", program.actor.name, "python", "python"),
    ], "none for the copies that the cluster makes and removes"
    first, second = entries[:2]
    assert (first.before, first.after["size"], first.address) == (None, 9_000_000, "127.0.0.1")
    assert (second.before["size"], second.after["size"], second.after["version"]) == (9_000_000, 3, 2)
    assert first.arguments == {"path": "films/a"}
