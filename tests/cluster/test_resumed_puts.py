"""Large files that are put by commands into a real node, while its processes, or the command itself, are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
Way = Callable[[ClusterNode], list[str]]


@pytest.fixture
def node(cluster: Cluster) -> ClusterNode:
    return node_with_disk(cluster)


def node_with_disk(cluster: Cluster) -> ClusterNode:
    """A node with a disk, and the bucket `films` of files with one copy; two processes receive the parts of a put."""
    [port] = free_ports(1)
    disk = cluster.folder / "disk"
    disk.mkdir()
    storage = {"disks": [str(disk)], "bind": f"127.0.0.1:{port}", "reserve": 0.0, "server_processes": 2}
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
    return node


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.mov"
    block = os.urandom(10_000_000)
    with path.open("wb") as opened:
        for _ in range(SIZE // len(block)):
            opened.write(block)
    return path


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


def upload(cluster: Cluster) -> Any:
    """The row of the only upload, when a part of it is durable."""
    columns = file_uploads.c.content_id, file_uploads.c.received
    return cluster.client.database.read(
        lambda c: c.execute(sa.select(*columns).where(file_uploads.c.received > 0)).first()
    )


@pytest.mark.parametrize(
    ("way", "killed"),
    [(by_database, SERVERS), (by_server, ("dashboard-1",))],
)
def test_a_put_outlives_its_server(
    cluster: Cluster, node: ClusterNode, film: Path, way: Way, killed: tuple[str, ...]
) -> None:
    with putting(node, str(film), way) as process:
        begun = eventually(lambda: upload(cluster), timeout=60, message=node.log_text)
        for slot in killed:
            node.kill(slot)
        stored = stored_by(process)
    assert int(stored["id"], 16) == begun.content_id, "it went on with the same upload"
    assert stored["blake3"] == blake3(film.read_bytes()).hexdigest()
    assert upload(cluster) is None


def test_a_put_outlives_an_outage_of_the_database(
    private_server: ServerFactory, make_cluster: MakeCluster, film: Path
) -> None:
    server = private_server("postgresql")
    cluster = make_cluster(server.url("peerd"))
    node = node_with_disk(cluster)
    with putting(node, str(film), by_database) as process:
        begun = eventually(lambda: upload(cluster), timeout=60, message=node.log_text)
        server.kill()
        eventually(lambda: len(DATABASE_ERROR.findall(node.log_text())) > 2, timeout=60, message=node.log_text)
        assert process.poll() is None, "it waits"
        server.start()
        stored = stored_by(process)
    assert int(stored["id"], 16) == begun.content_id, "it went on with the same upload"
    assert stored["blake3"] == blake3(film.read_bytes()).hexdigest()
    assert upload(cluster) is None


@pytest.mark.parametrize("way", [by_database, by_server])
def test_a_stream_outlives_a_power_cut_of_the_node(cluster: Cluster, node: ClusterNode, film: Path, way: Way) -> None:
    with film.open("rb") as opened, putting(node, "-", way, stdin=opened) as process:
        begun = eventually(lambda: upload(cluster), timeout=60, message=node.log_text)
        node.kill_all()
        node.up()
        stored = stored_by(process)
    assert int(stored["id"], 16) == begun.content_id
    assert stored["blake3"] == blake3(film.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("way", "number"), [(by_database, signal.SIGKILL), (by_database, signal.SIGINT), (by_server, signal.SIGKILL)]
)
def test_a_command_goes_on_where_an_earlier_one_was_killed(
    cluster: Cluster, node: ClusterNode, film: Path, way: Way, number: signal.Signals
) -> None:
    with putting(node, str(film), way) as process:
        begun = eventually(lambda: upload(cluster), timeout=60, message=node.log_text)
        process.send_signal(number)
        process.wait(60)
    [unfinished] = cluster.client.files.uploads.list("films").uploads
    assert begun.received <= unfinished.received < SIZE
    with putting(node, str(film), way) as process:
        stored = stored_by(process)
    assert int(stored["id"], 16) == begun.content_id
    assert stored["blake3"] == blake3(film.read_bytes()).hexdigest()
    assert cluster.client.files.uploads.list().uploads == []
