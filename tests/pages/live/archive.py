"""An archive for pictures: three nodes with a disk each, the third of which has burnt with its disk."""

from __future__ import annotations

import io
import random
import shutil
import tempfile
from pathlib import Path
from typing import Final

from peerd import Client
from peerd.storage.disk.identity import create_disk
from peerd.storage.placement.decision import FileHealth
from peerd.store.files.disks import cluster_identity
from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cluster.cluster import Cluster, ClusterNode
from tests.support.server import free_port

WITHIN: Final = 120.0
MEMORY: Final = Path("/dev/shm")
NODES: Final = ("archive-1", "archive-2", "archive-3")
FILMS: Final = (
    ("2026/lighthouse/scene-01.mov", 2_600_000),
    ("2026/lighthouse/scene-02.mov", 3_900_000),
    ("2026/lighthouse/scene-03.mov", 1_700_000),
    ("2026/lighthouse/sound.wav", 900_000),
    ("2026/harbour/take-1.mov", 2_200_000),
    ("2026/harbour/take-2.mov", 2_400_000),
    ("2026/readme.txt", 2_000),
)
MASTERS: Final = (("lighthouse.mxf", 6_000_000), ("harbour.mxf", 5_000_000))
"""With three copies, so that they are at risk until there is a third node again."""


class Archive:
    """The cluster.

    Args:
        folder: of the project.
    """

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, f"sqlite:///{folder}/peerd.sqlite")
        self.client: Client = self.cluster.client
        self.disks = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        """Below which the disks are: where there is room, so that none is nearly full."""
        self.nodes = [self._node(name) for name in NODES]

    def up(self) -> Archive:
        """Start the nodes, put the films, and lose one node with its disk."""
        for node in self.nodes:
            node.up()
        client = self.client
        identity = client.database.run(cluster_identity)
        for name in NODES:
            path = self.disk_path(name)
            path.mkdir()
            client.disks.register(create_disk(path, identity).disk, path=str(path), node=name)
        client.file_classes.set("masters", copies=3)
        client.buckets.create("films", quota="2TB")
        client.buckets.create("masters", class_name="masters")
        eventually(self._are_disks_online, timeout=WITHIN, message=self.cluster.describe)
        for bucket, files in (("films", FILMS), ("masters", MASTERS)):
            for key, size in files:
                client.files.put(io.BytesIO(random.Random(key).randbytes(size)), f"{bucket}/{key}")
        eventually(lambda: self._healths() == {FileHealth.WHOLE.value}, timeout=WITHIN, message=self.cluster.describe)
        self._lose(self.nodes[-1])
        return self

    @property
    def address(self) -> str:
        """The URL of the dashboard."""
        sockets = control_client.status(self.nodes[0].run_directory)["sockets"]
        [socket] = [one for one in sockets if one["bind"] == "127.0.0.1:0"]
        return f"http://{socket['addresses'][0]}"

    def disk_path(self, name: str) -> Path:
        return self.disks / f"disk-{name[-1]}"

    def close(self) -> None:
        """Stop the nodes; the test fails if a process is left."""
        left = self.cluster.clean_up()
        shutil.rmtree(self.disks)
        assert not left, f"processes were left behind: {left}"

    def _lose(self, node: ClusterNode) -> None:
        """A node burns; when nothing is heard of its disk, an operator declares it lost."""
        [disk] = [disk.id for disk in self.client.disks.list() if disk.node == node.name]
        node.kill_all()
        shutil.rmtree(self.disk_path(node.name))
        eventually(lambda: not self._is_online(disk), timeout=WITHIN, message=self.cluster.describe)
        self.client.disks.lost(disk)
        settled = {FileHealth.WHOLE.value, FileHealth.AT_RISK.value}
        eventually(lambda: self._healths() == settled and self._are_films_whole(), timeout=WITHIN)
        eventually(self._are_copies_counted, timeout=WITHIN, message=self.cluster.describe)

    def _is_online(self, number: int) -> bool:
        return any(disk.id == number and disk.condition == "online" for disk in self.client.files.overview().disks)

    def _are_disks_online(self) -> bool:
        return [disk.condition for disk in self.client.files.overview().disks] == ["online"] * len(NODES)

    def _healths(self) -> set[str]:
        kept = (self.client.files.kept(bucket).files for bucket in ("films", "masters"))
        return {file.health for files in kept for file in files}

    def _are_films_whole(self) -> bool:
        return {file.health for file in self.client.files.kept("films").files} == {FileHealth.WHOLE.value}

    def _are_copies_counted(self) -> bool:
        """Whether the counts of copies, which are taken now and then, are those after the loss."""
        return sum(disk.copies or 0 for disk in self.client.files.overview().disks) == 2 * len(FILMS + MASTERS)

    def _node(self, name: str) -> ClusterNode:
        storage: dict[str, object] = {
            "disks": [str(self.disk_path(name))],
            "bind": f"127.0.0.1:{free_port()}",
            "grace": "10m",
        }
        sections: dict[str, dict[str, object]] = {"storage": storage}
        if name == NODES[0]:
            sections["web.dashboard"] = {"app": "peerd.web:app", "bind": "127.0.0.1:0"}
        zone = {"zone": f"room {name[-1]}"}
        return self.cluster.node(name, node=zone, manager={"max_update": "10s"}, workers={}, sections=sections)
