"""Large files that are put by commands into a real node, while its processes, or the command itself, are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from blake3 import blake3

from peerd.domain.files import FileClass
from peerd.storage.disk.identity import create_disk
from peerd.store.files.buckets import create_bucket
from peerd.store.files.classes import set_class
from peerd.store.files.disks import cluster_identity, register_disk
from peerd.store.schema.tables import file_uploads
from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cluster.cluster import Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
from tests.faults.nodes import free_ports
from tests.support.servers import ServerFactory

SECRET = "the secret of the nodes of a test"
SIZE = 300_000_000
"""Several parts, of which the later ones are larger."""
SERVERS = ("storage-server-1", "storage-server-2")
DATABASE_ERROR = re.compile("DatabaseUnavailable|database_unavailable")
pytestmark = pytest.mark.slow
HELD_FROM = SIZE // 2
"""Bytes of a put that pass the proxy before it is let go, so that no put ends before the test has killed something."""
Way = Callable[[ClusterNode], list[str]]


class HoldingProxy:
    """Passes on what comes to a port, and holds it back from some byte on, until it is let go."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.free = threading.Event()
        self.rest = HELD_FROM
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        self.rest = HELD_FROM
        self.free.clear()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self.listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self.target)) as server:
            threading.Thread(target=self._pass, args=(server, client), daemon=True).start()
            self._pass(client, server, is_held=True)

    def _pass(self, source: socket.socket, to: socket.socket, *, is_held: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                if is_held and self.rest < 0:
                    self.free.wait()
                self.rest -= len(data) if is_held else 0
                to.sendall(data)
        for end in (source, to):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class PutNode:
    """A node with a disk, and what stands before its storage server."""

    node: ClusterNode
    proxy: HoldingProxy

    def upload(self) -> Any:
        """The row of the only upload, when a part of it is durable."""
        columns = file_uploads.c.content_id, file_uploads.c.received
        return self.node.cluster.client.database.read(
            lambda c: c.execute(sa.select(*columns).where(file_uploads.c.received > 0)).first()
        )

    def begun(self) -> Any:
        """The same, as soon as it is there; no more than a part of the file can come until the proxy is let go."""
        return eventually(self.upload, timeout=60, message=self.node.log_text)


def node_with_disk(cluster: Cluster) -> PutNode:
    """A node with a disk, and the bucket `films` of files with one copy; two processes receive the parts of a put."""
    [port] = free_ports(1)
    proxy = HoldingProxy(port)
    disk = cluster.folder / "disk"
    disk.mkdir()
    bind = {"bind": f"127.0.0.1:{port}", "address": f"127.0.0.1:{proxy.port}"}
    storage = {"disks": [str(disk)], **bind, "reserve": 0.0, "server_processes": 2}
    web = {"app": "peerd.web:app", "bind": "unix:web.sock"}
    sections = {"cluster": {"secret": SECRET}, "storage": storage, "web.dashboard": web}
    node = cluster.node("a", workers={}, manager={"max_update": 10.0}, sections=sections)
    database = cluster.client.database
    identity = create_disk(disk, database.run(cluster_identity))
    database.run(register_disk, identity.disk, path=str(disk), node_id=None)
    database.run(set_class, FileClass(name="default", copies=1, durable=1))
    database.run(create_bucket, "films")
    node.up()
    eventually(lambda: cluster.client.disks.list()[0].silent_for is not None, timeout=60, message=node.log_text)
    return PutNode(node, proxy)


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> PutNode:
    return node_with_disk(module_cluster("sqlite"))


@pytest.fixture
def put_node(shared: PutNode) -> Iterator[PutNode]:
    shared.proxy.hold()
    shared.node.repair()
    yield shared
    shared.proxy.free.set()


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("film") / "film.mov"
    block = os.urandom(10_000_000)
    with path.open("wb") as opened:
        for _ in range(SIZE // len(block)):
            opened.write(block)
    return path


@pytest.fixture(scope="module")
def checksum(film: Path) -> str:
    return blake3(film.read_bytes()).hexdigest()


def by_database(node: ClusterNode) -> list[str]:
    """The options of a command that reaches the nodes."""
    return ["--config", str(node.config)]


def by_server(node: ClusterNode) -> list[str]:
    """The options of a command that reaches the web server alone."""
    sockets = control_client.status(node.run_directory)["sockets"]
    [address] = [one for socket in sockets for one in socket["addresses"] if one.endswith("web.sock")]
    return ["--server", f"unix:{address}"]


@contextmanager
def putting(
    node: ClusterNode, source: str, way: Way = by_database, *, stdin: Any = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """`peerd files put` of a file, in a process of its own."""
    command = [*node.cluster.command, "files", "put", source, "films/f", *way(node), "--json"]
    process = subprocess.Popen(
        command, cwd=node.cluster.folder, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def stored_by(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return dict(json.loads(out)["put"][0])


@pytest.mark.parametrize(("way", "killed"), [(by_database, SERVERS), (by_server, ("dashboard-1",))])
def test_a_put_outlives_its_server(
    put_node: PutNode, film: Path, checksum: str, way: Way, killed: tuple[str, ...]
) -> None:
    with putting(put_node.node, str(film), way) as process:
        begun = put_node.begun()
        for slot in killed:
            put_node.node.kill(slot)
        put_node.proxy.free.set()
        stored = stored_by(process)
    assert int(stored["id"], 16) == begun.content_id, "it went on with the same upload"
    assert stored["blake3"] == checksum
    assert put_node.upload() is None


def test_a_put_outlives_an_outage_of_the_database(
    private_server: ServerFactory, make_cluster: MakeCluster, film: Path, checksum: str
) -> None:
    server = private_server("postgresql")
    put_node = node_with_disk(make_cluster(server.url("peerd")))
    node = put_node.node
    with putting(node, str(film), by_database) as process:
        begun = put_node.begun()
        server.kill()
        put_node.proxy.free.set()
        eventually(lambda: len(DATABASE_ERROR.findall(node.log_text())) > 2, timeout=60, message=node.log_text)
        assert process.poll() is None, "it waits"
        server.start()
        stored = stored_by(process)
    assert int(stored["id"], 16) == begun.content_id, "it went on with the same upload"
    assert stored["blake3"] == checksum
    assert put_node.upload() is None


@pytest.mark.parametrize("way", [by_database, by_server])
def test_a_stream_outlives_a_power_cut_of_the_node(put_node: PutNode, film: Path, checksum: str, way: Way) -> None:
    with film.open("rb") as opened, putting(put_node.node, "-", way, stdin=opened) as process:
        begun = put_node.begun()
        put_node.node.kill_all()
        put_node.proxy.free.set()
        put_node.node.up()
        stored = stored_by(process)
    assert int(stored["id"], 16) == begun.content_id
    assert stored["blake3"] == checksum


@pytest.mark.parametrize(
    ("way", "number"), [(by_database, signal.SIGKILL), (by_database, signal.SIGINT), (by_server, signal.SIGKILL)]
)
def test_a_command_goes_on_where_an_earlier_one_was_killed(
    put_node: PutNode, film: Path, checksum: str, way: Way, number: signal.Signals
) -> None:
    uploads = put_node.node.cluster.client.files.uploads
    with putting(put_node.node, str(film), way) as process:
        begun = put_node.begun()
        process.send_signal(number)
        process.wait(60)
    put_node.proxy.free.set()
    [unfinished] = uploads.list("films").uploads
    assert begun.received <= unfinished.received < SIZE
    with putting(put_node.node, str(film), way) as process:
        stored = stored_by(process)
    assert int(stored["id"], 16) == begun.content_id
    assert stored["blake3"] == checksum
    assert uploads.list().uploads == []
