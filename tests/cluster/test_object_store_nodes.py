"""Real nodes that share an object store: one is killed while it makes a copy there, and another one makes it."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator

import pytest

from peerd import Client
from peerd.domain.files import DiskKind, FileClass
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.identity import create_disk
from peerd.storage.node_requests import writable_urls
from peerd.storage.object_disk.disk import object_name
from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.storage.object_disk.place import create_disk_at
from peerd.store.files.classes import set_class
from peerd.store.files.disks import cluster_identity, list_disks, register_disk
from peerd.testing import eventually
from tests.cluster.cluster import Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
from tests.support.object_store import ObjectStoreServer, free_port, moto_server
from tests.support.throttling import StoreRequest, ThrottlingProxy, throttling_proxy

pytestmark = pytest.mark.slow
MIB = 1024 * 1024
SIZE = 40 * MIB
CAPACITY = "100MB"
"""So little beside the folder that a client puts to the folder's node."""
WITHIN = 120.0
SECRET = "the secret of the nodes of this test"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreServer]:
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(server: ObjectStoreServer) -> Iterator[ThrottlingProxy]:
    with throttling_proxy(server.url) as proxy:
        yield proxy


class SharingNodes:
    """A node with a folder, and two with the object store alone, so that a copy goes there by one of the two.

    Args:
        cluster: of the nodes.
        options: where the object store is.
    """

    def __init__(self, cluster: Cluster, options: ObjectDiskOptions) -> None:
        self.cluster = cluster
        self.client = Client(cluster.url, secret=SECRET)
        database = cluster.client.database
        identity = database.run(cluster_identity)
        disk = create_disk_at(options, identity).disk
        self.store = database.run(lambda c: register_disk(c, disk, path=options.place, node_id=None, kind=DiskKind.S3))
        folder = cluster.folder / "disk"
        folder.mkdir()
        place = {"endpoint": options.endpoint, "bucket": options.bucket, "prefix": options.prefix}
        files = {"credentials_file": options.credentials_file, "capacity": CAPACITY}
        stores: dict[str, dict[str, object]] = {f"storage.object_stores.{options.name}": {**place, **files}}
        self.keeper = self._node("keeper", {"disks": [str(folder)]}, {})
        self.sharing = [self._node(name, {}, stores) for name in ("one", "two")]
        for node in (self.keeper, *self.sharing):
            node.up()
        self.client.disks.register(create_disk(folder, identity).disk, path=str(folder), node="keeper")
        database.run(set_class, FileClass(name="default", copies=2, object_copies=1))
        self.client.buckets.create("films")
        eventually(self._are_disks_online, timeout=WITHIN, message=cluster.describe)

    def _node(self, name: str, storage: dict[str, object], sections: dict[str, dict[str, object]]) -> ClusterNode:
        values = {"bind": f"127.0.0.1:{free_port()}", "grace": "1m", **storage}
        more = {"cluster": {"secret": SECRET}, "storage": values, **sections}
        return self.cluster.node(name, manager={"max_update": "8s"}, workers={}, sections=more)

    def _are_disks_online(self) -> bool:
        return [disk.condition for disk in self.client.files.overview().disks] == ["online", "online"]

    def _does_the_folder_take_puts(self) -> bool:
        database = self.client.database
        urls = {disk.url for disk in database.read(list_disks) if disk.id != self.store}
        return not urls.isdisjoint(database.read(writable_urls, SIZE))

    def put(self, key: str, content: bytes) -> ContentId:
        """Put a file into the folder, when its node has reported it and its disk is not slow."""
        eventually(self._does_the_folder_take_puts, timeout=WITHIN, message=self.cluster.describe)
        return ContentId(self.client.files.put(io.BytesIO(content), f"films/{key}").id)

    def task(self, name: str) -> Task:
        """The newest task of a name."""
        return max(self.client.tasks.list(queue="storage", name=name), key=lambda task: task.id)

    def worker_of(self, name: str) -> ClusterNode:
        """The node that runs the task of a name."""
        node_id = self.task(name).worker_node_id
        return next(node for node in self.sharing if self.client.nodes.get(node.name).id == node_id)

    def states(self, key: str) -> dict[int, str]:
        """The states of the copies of a file, by disk."""
        return {copy.disk: copy.state for copy in self.client.files.stat(f"films/{key}").copies}


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster, server: ObjectStoreServer, proxy: ThrottlingProxy) -> Iterator[SharingNodes]:
    sharing = SharingNodes(module_cluster("sqlite"), server.options(endpoint=proxy.url))
    yield sharing
    sharing.client.close()


@pytest.fixture
def nodes(shared: SharingNodes) -> SharingNodes:
    for node in shared.cluster.nodes:
        node.repair()
    return shared


def is_second_part(request: StoreRequest) -> bool:
    return "partNumber=2&" in request.target


def is_read_of(content: ContentId) -> Callable[[StoreRequest], bool]:
    return lambda request: request.method == "GET" and request.target.endswith(object_name(content))


def names_of(server: ObjectStoreServer) -> list[str]:
    return [name.removeprefix("peerd/one/") for name in server.names() if not name.endswith("peerd-disk.json")]


def test_a_copy_whose_node_is_killed_is_made_by_another_node_and_what_was_sent_is_swept(
    nodes: SharingNodes, server: ObjectStoreServer, proxy: ThrottlingProxy
) -> None:
    proxy.hold(is_second_part)
    data = random.Random(1).randbytes(SIZE)
    content = nodes.put("f", data)
    proxy.wait_until_held(WITHIN)
    killed = nodes.worker_of("copy-shared")
    assert nodes.states("f")[nodes.store] == "planned"
    killed.kill_all()
    assert names_of(server) == [], "there is no half of an object"
    assert len(server.uploads()) == 1
    assert nodes.states("f")[nodes.store] == "planned"
    assert nodes.client.files.stat("films/f").good == 1
    proxy.pass_all()
    eventually(lambda: nodes.states("f")[nodes.store] == "stored", timeout=WITHIN, message=nodes.cluster.describe)
    assert names_of(server) == [object_name(content)]
    [name] = [name for name in server.names() if name.endswith(str(content))]
    assert server.client.get_object(Bucket="copies", Key=name)["Body"].read() == data
    task = nodes.task("copy-shared")
    assert task.status is Status.DONE
    assert nodes.worker_of("copy-shared") is not killed
    assert len(server.uploads()) == 1, "that of the node that was killed"
    body = {"disk": nodes.store}
    swept = nodes.client.enqueue("storage", name="sweep-shared", body=body).result(timeout=WITHIN)
    assert swept == {"contents": 0, "parts": 1, "quarantined": 0}
    assert server.uploads() == []
    assert names_of(server) == [object_name(content)]


def test_a_verification_whose_node_is_killed_is_done_by_another_node_and_calls_no_copy_bad(
    nodes: SharingNodes, proxy: ThrottlingProxy
) -> None:
    content = nodes.put("g", random.Random(2).randbytes(SIZE))
    eventually(lambda: nodes.states("g")[nodes.store] == "stored", timeout=WITHIN, message=nodes.cluster.describe)
    proxy.hold(is_read_of(content))
    nodes.client.files.verify("films/g")
    proxy.wait_until_held(WITHIN)
    killed = nodes.worker_of("verify-shared")
    killed.kill_all()
    assert nodes.states("g")[nodes.store] == "stored"
    proxy.pass_all()
    eventually(
        lambda: nodes.task("verify-shared").status is Status.DONE, timeout=WITHIN, message=nodes.cluster.describe
    )
    task = nodes.task("verify-shared")
    assert nodes.worker_of("verify-shared") is not killed
    assert task.result == '{"verified":1,"bad":0}'
    assert nodes.states("g")[nodes.store] == "stored"
