"""Contents by a server: a client that has its address and a token alone puts, gets and removes files."""

from __future__ import annotations

import asyncio
import io
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from blake3 import blake3

from peerd import Client, NotPermitted, Right
from peerd.domain.errors import InvalidAccess
from peerd.domain.file_errors import (
    BucketNotFound,
    ContentDiffers,
    FileConditionFailed,
    FileMissing,
    FileReplaced,
    InvalidFile,
    NoClusterSecret,
    NoNodeTakes,
    QuotaExceeded,
    UploadBroken,
)
from peerd.operate.remote.errors import TokenRefused
from peerd.testing import eventually
from peerd.web.file_uploads import MOST_UPLOADS
from tests.storage.nodes import StorageCluster
from tests.storage.test_client import BreakingServer, serve_at, tracemalloc_peak
from tests.web.access_world import API, bearer, serving

READ, WRITE, VIEW = Right.READ_FILES, Right.WRITE_FILES, Right.VIEW


@pytest.fixture(autouse=True)
def _kept_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes do not report their addresses again: tests change them. Tries follow each other soon."""
    for module in ("files", "server_uploads"):
        monkeypatch.setattr(f"peerd.operate.remote.{module}.PAUSES", (0.1, 0.2, 0.4))
    monkeypatch.setattr("peerd.storage.server.app.REFRESH_EVERY", 3_600.0)


@pytest.fixture
def address(program: Client) -> Iterator[str]:
    program.tokens.create("first", [VIEW])  # without a token, the machine itself may do everything
    with serving(program) as address:
        yield address


@pytest.fixture
def client(address: str, secret: str) -> Iterator[Client]:
    with Client(address, token=secret) as client:
        yield client


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A file of three chunks."""
    path = tmp_path / "film.mov"
    path.write_bytes(os.urandom(9_000_000))
    return path


class BreakingUploads:
    """Relays connections, and ends the first ones after some bytes of their requests.

    Args:
        url: of the server.
        after: bytes of a request that are relayed.
        broken: how many connections are ended.
        answers: end them when the request was relayed as a whole, instead of its answer.
        method: of the requests that are broken.

    Attributes:
        ended: connections that were ended.
        relayed: bytes of requests that were relayed.
    """

    def __init__(
        self, url: str, *, after: int = 2**40, broken: int = 10**6, answers: bool = False, method: bytes = b"PUT"
    ) -> None:
        self._method = method
        host, _, port = url.removeprefix("http://").partition(":")
        self._target, self._after, self._broken, self._answers = (host, int(port)), after, broken, answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.ended = 0
        self.relayed = 0
        self._lock = threading.Lock()
        self._relays: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._relays.append(threading.Thread(target=self._serve, args=(accepted,)))
            self._relays[-1].start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted, suppress(OSError), socket.create_connection(self._target) as other:
            is_it = accepted.recv(len(self._method), socket.MSG_PEEK) == self._method
            self._relay(accepted, other, breaks=is_it and self._takes_turn())

    def _takes_turn(self) -> bool:
        """Whether this connection is one of those that are ended."""
        with self._lock:
            self._broken -= 1
            return self._broken >= 0

    def _relay(self, accepted: socket.socket, other: socket.socket, *, breaks: bool) -> None:
        answering = threading.Thread(target=self._answer, args=(other, accepted, breaks and self._answers))
        answering.start()
        left = self._after if breaks and not self._answers else 2**40
        while left and (data := accepted.recv(min(left, 65_536))):
            other.sendall(data)
            left -= len(data)
            self.relayed += len(data)
        if breaks and not self._answers:
            self.ended += 1
            accepted.close()
        other.shutdown(socket.SHUT_WR if not breaks or self._answers else socket.SHUT_RDWR)
        answering.join()

    def _answer(self, other: socket.socket, accepted: socket.socket, is_lost: bool) -> None:  # noqa: FBT001
        try:
            while data := other.recv(65_536):
                if is_lost:
                    self.ended += 1
                    accepted.shutdown(socket.SHUT_RDWR)
                    return
                accepted.sendall(data)
            accepted.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def break_next(self, connections: int) -> None:
        """End so many of the next connections."""
        with self._lock:
            self._broken = connections

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for relay in self._relays:
            relay.join()


def test_a_file_is_put_got_and_removed(client: Client, film: Path, tmp_path: Path, cluster: StorageCluster) -> None:
    seen: list[tuple[int, int | None]] = []
    path = "films/2026/größe 1?#%2F..mov"
    put = client.files.put(
        film,
        path,
        content_type="video/mp4",
        metadata={"take": "drei ä"},
        expires_in="7d",
        progress=lambda done, of: seen.append((done, of)),
    )
    assert (put.key, put.size, put.version, put.metadata) == (path[6:], 9_000_000, 1, {"take": "drei ä"})
    assert put.expires_at is not None
    assert seen[-1] == (9_000_000, 9_000_000)
    assert client.files.stat(path).file == put
    assert client.files.get(path, tmp_path / "got") == put
    assert (tmp_path / "got").read_bytes() == film.read_bytes()
    with client.files.open(path) as opened:
        opened.seek(8_999_990)
        assert opened.read() == film.read_bytes()[-10:]
        opened.seek(0)
        assert opened.read(10) == film.read_bytes()[:10]
    assert client.files.put(io.BytesIO(b"two"), path).version == 2
    client.files.move(path, "films/b")
    assert client.files.remove("films/b").size == 3
    with pytest.raises(FileMissing):
        client.files.get(path, tmp_path / "none")
    assert client.files.put(io.BytesIO(), "films/empty").size == 0
    empty = io.BytesIO()
    client.files.get("films/empty", empty)
    assert empty.getvalue() == b""
    client.files.remove("films/empty")
    cluster.run_tasks()
    assert [node.contents() for node in cluster.nodes.values()] == [[], [], []]


def test_the_same_awaited(client: Client, film: Path, tmp_path: Path) -> None:
    async def use() -> None:
        await client.aio.files.put(film, "films/f")
        await client.aio.files.get("films/f", tmp_path / "got")
        await client.aio.files.remove("films/f")

    asyncio.run(use())
    assert (tmp_path / "got").read_bytes() == film.read_bytes()


def test_errors_are_those_of_a_client_of_the_database(client: Client, program: Client, film: Path) -> None:
    client.files.put(film, "films/f")
    with pytest.raises(FileConditionFailed, match="there is a file of this key"):
        client.files.put(film, "films/f", only_new=True)
    with pytest.raises(BucketNotFound):
        client.files.put(film, "music/f")
    with pytest.raises(InvalidFile, match="no name of a class"):
        client.files.put(film, "films/f", class_name="x" * 64 + "\n")
    with pytest.raises(InvalidFile, match="is no name"):
        client.files.put(film, "films/f", metadata={"ä": "x"})
    program.buckets.change("films", quota=10_000_000)
    with pytest.raises(QuotaExceeded):
        client.files.put(film, "films/g")
    with Client(client._mode.shown_url, token="peerd_unknown") as stranger, pytest.raises(TokenRefused):
        stranger.files.put(film, "films/f")


def test_a_token_reads_or_writes_as_its_rights_say(program: Client, address: str, film: Path) -> None:
    def of(*rights: Right, **more: Any) -> Client:
        return Client(address, token=program.tokens.create("t", rights, **more).secret)

    program.files.put(film, "films/2026/a")
    program.files.put(film, "films/b")
    out = io.BytesIO()
    with of(VIEW, Right.ENQUEUE, Right.OPERATE) as other, of(READ) as reads, of(WRITE) as writes:
        for call in (
            lambda: other.files.get("films/b", out),
            lambda: other.files.put(film, "films/b"),
            lambda: other.files.list("films"),
            lambda: other.files.remove("films/b"),
            lambda: reads.files.put(film, "films/b"),
            lambda: reads.files.remove("films/b"),
            lambda: reads.files.move("films/b", "films/c"),
            lambda: writes.files.get("films/b", out),
            lambda: writes.files.open("films/b"),
            lambda: writes.files.list("films"),
        ):
            with pytest.raises(NotPermitted, match=r"it needs the right (read|write)-files"):
                call()
        assert out.getvalue() == b""
        assert [one.key for one in reads.files.list("films").files] == ["2026/a", "b"]
        reads.files.get("films/b", out)
        assert out.getvalue() == film.read_bytes()
        assert writes.files.put(film, "films/b").version == 2
    with of(READ, WRITE, file_scopes=["films/2026/"]) as some:
        act: Callable[[], object]
        some.files.get("films/2026/a", io.BytesIO())
        some.files.put(film, "films/2026/c")
        some.files.move("films/2026/c", "films/2026/d")
        assert len(some.files.list("films", "2026/").files) == 2
        for act in (
            lambda: some.files.get("films/b", out),
            lambda: some.files.put(film, "films/b"),
            lambda: some.files.list("films"),
            lambda: some.files.list("films", "20"),
            lambda: some.files.move("films/2026/d", "films/d"),
            lambda: some.files.move("films/b", "films/2026/b"),
            lambda: some.files.remove("films/b"),
            lambda: some.files.remove_below("films", ""),
        ):
            with pytest.raises(NotPermitted, match="is none of its files"):
                act()
    with of(VIEW, READ, queues=["video"], file_scopes=["films"]) as of_queue:
        of_queue.files.get("films/b", io.BytesIO())
        with pytest.raises(NotPermitted):
            of_queue.files.at_risk()
    with of(VIEW, READ, file_scopes=["films"]) as viewer, pytest.raises(NotPermitted, match="restricted to some"):
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
    refused = [entry for entry in program.audit.page(limit=100).items if entry.outcome == "refused"]
    assert {"files.put", "files.remove", "files.stat"} <= {entry.operation for entry in refused}


def test_an_upload_that_breaks_is_sent_again(client: Client, secret: str, film: Path) -> None:
    broken = BreakingUploads(client._mode.shown_url, after=3_000_000, broken=2)
    try:
        with Client(broken.url, token=secret) as remote:
            assert remote.files.put(film, "films/f").version == 1
        assert broken.ended == 2
    finally:
        broken.close()
    assert client.files.get("films/f", io.BytesIO()).blake3 == blake3(film.read_bytes()).hexdigest()


def test_an_upload_that_breaks_for_good_names_the_remedy(
    client: Client, secret: str, film: Path, cluster: StorageCluster
) -> None:
    broken = BreakingUploads(client._mode.shown_url, after=3_000_000)
    try:
        with Client(broken.url, token=secret) as remote:
            with pytest.raises(UploadBroken, match=r"it was sent 4 times; put it again"):
                remote.files.put(film, "films/f")
            with pytest.raises(UploadBroken, match=r"it was sent 4 times; put it again"):
                remote.files.put(io.BytesIO(film.read_bytes()), "films/f")
            with pytest.raises(UploadBroken, match="can be read once only: put it again from a file"):
                remote.files.put(io.BytesIO(film.read_bytes()), "films/f", parts_above=None)
    finally:
        broken.close()
    assert client.files.list("films").files == []

    def parts() -> list[Path]:
        return [part for node in cluster.nodes.values() for part in (node.paths[0] / "parts").iterdir()]

    eventually(lambda: parts() == [])
    assert [node.contents() for node in cluster.nodes.values()] == [[], [], []]


def test_a_lost_answer_is_no_refusal_of_what_was_stored(client: Client, secret: str, film: Path) -> None:
    broken = BreakingUploads(client._mode.shown_url, broken=1, answers=True)
    try:
        with Client(broken.url, token=secret) as remote:
            assert remote.files.put(film, "films/f", only_new=True).version == 1
        assert broken.ended == 1
    finally:
        broken.close()


def test_an_upload_is_sent_again_when_a_node_fails(client: Client, cluster: StorageCluster, film: Path) -> None:
    servers = [BreakingServer(cluster.nodes[node].url, 0) for node in "ab"]
    try:
        for node, server in zip("ab", servers, strict=True):
            serve_at(cluster, node, server.url)
        for number in range(6):
            assert client.files.put(film, f"films/{number}").size == 9_000_000
        serve_at(cluster, "c", servers[0].url)
        with pytest.raises(NoNodeTakes, match="no node takes 'films/none'"):
            client.files.put(film, "films/none")
    finally:
        for server in servers:
            server.close()


def test_a_download_goes_on_where_the_connection_broke(client: Client, secret: str, film: Path, tmp_path: Path) -> None:
    put = client.files.put(film, "films/f")
    server = BreakingServer(client._mode.shown_url, 4_000_000)
    try:
        with Client(client._mode.shown_url, token=secret) as remote:
            remote._mode.open_transfer = _transfer_at(remote, server.url)  # type: ignore[method-assign]
            assert remote.files.get("films/f", tmp_path / "got") == put
        assert server.broken >= 2
    finally:
        server.close()
    assert (tmp_path / "got").read_bytes() == film.read_bytes()


def test_damage_on_the_way_is_found(client: Client, secret: str, film: Path, tmp_path: Path) -> None:
    client.files.put(film, "films/f")
    server = BreakingServer(client._mode.shown_url, 2**40, damages=True)
    try:
        with Client(client._mode.shown_url, token=secret) as remote:
            remote._mode.open_transfer = _transfer_at(remote, server.url)  # type: ignore[method-assign]
            with pytest.raises(ContentDiffers):
                remote.files.get("films/f", tmp_path / "got")
    finally:
        server.close()
    assert not (tmp_path / "got").exists()


def _transfer_at(remote: Client, url: str) -> Any:
    """Transfers by another address; operations go to the server itself."""
    make = remote._mode.open_transfer

    def open_transfer() -> Any:
        transfer: Any = make()
        transfer._server.url = url
        return transfer

    return open_transfer


def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed(client: Client, film: Path, tmp_path: Path) -> None:
    client.files.put(film, "films/f")
    with client.files.open("films/f") as opened:
        client.files.put(io.BytesIO(b"other"), "films/f")
        with pytest.raises(FileReplaced):
            opened.read()


def test_the_memory_does_not_grow_with_the_file(client: Client, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as opened:
        opened.truncate(100_000_000)
    with tracemalloc_peak() as peak:
        client.files.put(large, "films/large")
        client.files.get("films/large", tmp_path / "got")
    assert peak[0] < 60_000_000, "the nodes and the server of this process are counted, too"
    assert (tmp_path / "got").stat().st_size == 100_000_000


def test_any_client_of_http_puts_and_gets(address: str, secret: str, program: Client) -> None:
    content = os.urandom(5_000_000)
    with httpx.Client(base_url=address + API, headers=bearer(secret)) as http:
        sent = {"content-type": "text/html", "x-peerd-blake3": blake3(content).hexdigest(), "x-peerd-meta-take": "3"}
        put = http.put("/files/films/a/b.html", content=content, headers=sent)
        assert (put.status_code, put.json()["size"], put.json()["metadata"]) == (201, 5_000_000, {"take": "3"})
        assert put.json()["id"].isdigit(), "a text, since JavaScript cannot hold it as a number"
        got = http.get("/files/films/a/b.html")
        assert (got.status_code, got.content) == (200, content)
        assert got.headers["x-peerd-meta-take"] == "3"
        assert got.headers["content-disposition"] == "attachment"
        assert got.headers["content-security-policy"].startswith("sandbox"), "it runs with no rights of the site"
        assert got.headers["x-content-type-options"] == "nosniff"
        head = http.head("/files/films/a/b.html")
        assert (head.status_code, head.headers["content-length"], head.content) == (200, "5000000", b"")
        part = http.get("/files/films/a/b.html", headers={"range": "bytes=4194300-4194309"})
        assert (part.status_code, part.content) == (206, content[4194300:4194310])
        assert part.headers["content-range"] == "bytes 4194300-4194309/5000000"
        assert http.get("/files/films/a/b.html", headers={"range": "bytes=5000000-"}).status_code == 416
        assert http.get("/files/films/a/b.html", headers={"if-none-match": got.headers["etag"]}).status_code == 304
        assert http.get("/files/films/a/b.html", headers={"if-match": '"other"'}).status_code == 412
        streamed = http.put("/files/films/chunked", content=iter([b"a" * 100_000] * 30))
        assert streamed.json()["size"] == 3_000_000
        wrong = http.put("/files/films/wrong", content=b"x", headers={"x-peerd-blake3": "0" * 64})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "ContentDiffers")
        again = http.put("/files/films/chunked", content=b"x", headers={"if-none-match": "*"})
        assert (again.status_code, again.json()["code"]) == (409, "FileConditionFailed")
        assert http.put("/files/films/x", content=b"", headers={"if-match": '"a"'}).status_code == 422
        assert http.put("/files/films/%ff", content=b"").json()["detail"] == "key: it is not UTF-8"
        assert http.get("/files/films/none").status_code == 404
        assert http.delete("/files/films/chunked").status_code == 204
        assert http.delete("/files/films/chunked").status_code == 404
    assert [one.key for one in program.files.list("films").files] == ["a/b.html"]


def test_a_large_upload_that_is_refused_gets_its_answer(program: Client, address: str) -> None:
    reads = bearer(program.tokens.create("reads", [READ]).secret)
    with httpx.Client(base_url=address + API) as http:
        for _ in range(3):
            refused = http.put("/files/films/f", content=b"x" * 15_000_000, headers=reads)
            assert (refused.status_code, refused.json()["code"]) == (403, "NotPermitted")
        assert http.put("/files/films/f", content=b"x").status_code == 401
        assert http.get("/files/films/f").status_code == 401
    assert program.files.list("films").files == []


def test_more_uploads_than_places_are_put_off(client: Client, address: str, secret: str) -> None:
    host, _, port = address.removeprefix("http://").partition(":")
    head = (
        f"PUT {API}/files/films/slow-{{}} HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {secret}\r\n"
        "content-length: 1000\r\n\r\nx"
    )
    slow = [socket.create_connection((host, int(port))) for _ in range(MOST_UPLOADS + 1)]
    try:
        for number, one in enumerate(slow):
            one.sendall(head.format(number).encode())
        answered, _, _ = select.select(slow, [], [], 60)
        assert len(answered) == 1, "one more than there are places"
        assert b" 503 " in answered[0].recv(65536).splitlines()[0]
        with httpx.Client(base_url=address + API, headers=bearer(secret)) as http:
            refused = _refusal(http)
            assert refused is not None
            assert refused.headers["retry-after"] == "2"
    finally:
        for one in slow:
            one.close()
    with httpx.Client(base_url=address + API, headers=bearer(secret)) as http:
        eventually(lambda: _refusal(http) is None)
    assert [one.key for one in client.files.list("films", "slow").files] == [], "what was aborted is not there"


def _refusal(http: httpx.Client) -> httpx.Response | None:
    """The answer to one more upload than there are places; other answers are none of these."""
    answer = http.put("/files/films/probe", content=b"x")
    return answer if answer.status_code == 503 and answer.json()["code"] == "TooManyUploads" else None


def test_a_server_without_the_secret_or_a_node_says_so(cluster: StorageCluster, film: Path) -> None:
    cluster.catalogue.bucket()
    with Client(cluster.catalogue.store) as without:
        secret = without.tokens.create("t", [READ, WRITE]).secret
        with serving(without) as address, Client(address, token=secret) as remote, pytest.raises(NoClusterSecret):
            remote.files.put(film, "films/f")
    assert issubclass(NoNodeTakes, Exception)


def test_what_clients_do_with_files_is_in_the_audit_log(
    client: Client, program: Client, cluster: StorageCluster, film: Path
) -> None:
    client.files.put(film, "films/a")
    client.files.put(io.BytesIO(b"two"), "films/a")
    client.files.move("films/a", "films/b")
    client.files.get("films/b", io.BytesIO())
    client.files.remove("films/b")
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
