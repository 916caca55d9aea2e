"""Keep a folder on two of three nodes, lose one of the nodes with its disk, and find everything whole again.

It starts the three nodes itself, in a folder of its own, and stops them at the end.
"""

from __future__ import annotations

import filecmp
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

from peerd import Client

NODES = ("a", "b", "c")
BUCKET = "photos"
WITHIN = 180.0
PICTURES = 60
SIZES = range(20_000, 200_000)
FILM = 20_000_000


class ArchiveNode:
    """A node with one disk, as if it were a machine of its own.

    Args:
        name: of the node.
        folder: of the project.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.disk = folder / f"disk-{name}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._config = f"node-{name}.toml"
        text = Path(__file__).with_name(self._config).read_text()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        (folder / self._config).write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{self._port}", text))

    @property
    def environment(self) -> dict[str, str]:
        """That of the commands on this node."""
        return {**os.environ, "PEERD_CONFIG": self._config}

    def start(self, client: Client) -> None:
        """Start it, and wait until it runs and the cluster knows it: its commands find it from then on."""
        with (self._folder / f"{self.name}.log").open("ab") as log:
            command = [sys.executable, "-m", "peerd", "up"]
            self._process = subprocess.Popen(
                command, cwd=self._folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_for(f"node {self.name} runs", self._is_running)
        wait_for(f"{self.name} is in the cluster", lambda: self.name in {node.name for node in client.nodes.list()})

    def lose(self) -> None:
        """Kill all its processes, and remove all that is on its disk."""
        assert self._process is not None
        master = psutil.Process(self._process.pid)
        for process in [master, *master.children(recursive=True)]:
            process.kill()
        self._process.wait()
        for path in self.disk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def stop(self) -> None:
        """Stop it gracefully, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)

    def _is_running(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / f"{self.name}.log").read_text()
        try:
            socket.create_connection(("127.0.0.1", self._port), 1.0).close()
        except OSError:
            return False
        return True


class Archive:
    """The three nodes, and the commands on them.

    Args:
        folder: of the project: the configurations, the database and the disks.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = {name: ArchiveNode(name, folder) for name in NODES}
        self.client = Client(f"sqlite:///{folder}/peerd.sqlite")

    def peerd(self, words: str, *, on: str = "a") -> None:
        """Run a command as the user of a node would, and show what it prints."""
        print(f"\n{on}$ peerd {words}", flush=True)
        command = [sys.executable, "-m", "peerd", *shlex.split(words)]
        subprocess.run(command, cwd=self.folder, env=self.nodes[on].environment, check=True)

    def nodes_of_files(self) -> Counter[str]:
        """How many files have their copies on which nodes."""
        found: Counter[str] = Counter()
        for file in self.client.files.list(BUCKET).files:
            copies = self.client.files.stat(f"{BUCKET}/{file.key}").copies
            found[" and ".join(sorted(str(copy.node) for copy in copies if copy.state == "stored"))] += 1
        return found

    def online(self) -> set[str]:
        """The nodes whose disk is used."""
        return {
            str(disk.node)
            for disk in self.client.disks.list()
            if disk.state == "active" and disk.problem is None and disk.silent_for is not None and disk.silent_for < 10
        }


def main() -> None:
    """All steps, one after another."""
    folder = Path(tempfile.mkdtemp(prefix="peerd-archive-"))
    archive = Archive(folder)
    try:
        set_up(archive)
        keep_a_folder(archive)
        lose_a_node(archive)
        read_it_back(archive)
        bring_the_node_back(archive)
    finally:
        for node in archive.nodes.values():
            node.stop()
        archive.client.close()
        shutil.rmtree(folder)


def set_up(archive: Archive) -> None:
    """Three nodes, each with a disk."""
    say(1, "three nodes, each with an empty folder that becomes a disk")
    for node in archive.nodes.values():
        node.disk.mkdir()
        node.start(archive.client)
        archive.peerd(f"files disks add disk-{node.name}", on=node.name)
    wait_for("all disks are used", lambda: archive.online() == set(NODES))
    archive.peerd("files classes set default --copies 2 --durable 2")
    archive.peerd(f"files buckets create {BUCKET}")


def keep_a_folder(archive: Archive) -> None:
    """Put a folder; a put ends when two nodes have the file durably."""
    say(2, "a folder is put: each file is on two of the nodes when its put ends")
    pictures = archive.folder / "2026"
    pictures.mkdir()
    for number in range(PICTURES):
        (pictures / f"picture-{number:02}.jpg").write_bytes(random.randbytes(random.choice(SIZES)))
    (pictures / "film.mov").write_bytes(random.randbytes(FILM))
    archive.peerd(f"files put --recursive 2026 {BUCKET}")
    show_nodes(archive)


def lose_a_node(archive: Archive) -> None:
    """Kill a node, wipe its disk, and wait until every file has two copies again."""
    say(3, "node c is killed, and all that its disk had is gone")
    lost = sum(count for nodes, count in archive.nodes_of_files().items() if "c" in nodes)
    archive.nodes["c"].lose()
    print(f"{lost} of {PICTURES + 1} files have one copy left. After 15 s without node c they are copied:")
    wait_for("every file is on a and b", lambda: set(archive.nodes_of_files()) <= {"a and b", "a and b and c"})
    archive.peerd("files at-risk --health at-risk")
    archive.peerd("files disks list")


def read_it_back(archive: Archive) -> None:
    """Compare what the archive has with the folder."""
    say(4, "the folder is read back from the nodes that are left, and compared")
    archive.peerd(f"files get --recursive {BUCKET}/2026/ back", on="b")
    names = sorted(path.name for path in (archive.folder / "2026").iterdir())
    same, other, missing = filecmp.cmpfiles(archive.folder / "2026", archive.folder / "back", names, shallow=False)
    print(f"\n{len(same)} files are equal, {len(other)} differ, {len(missing)} are missing")
    assert len(same) == PICTURES + 1, (other, missing)


def bring_the_node_back(archive: Archive) -> None:
    """Start the node again: its empty folder is refused, until it is made a new disk."""
    say(5, "node c is back; its folder is empty, so it is no disk, and nothing is written to it")
    archive.nodes["c"].start(archive.client)
    assert not any(archive.nodes["c"].disk.iterdir()), "something was written to a folder that is no disk"
    [number] = [disk.id for disk in archive.client.disks.list() if disk.node == "c"]
    wait_for(
        "node c says that it has no disk",
        lambda: any(disk.problem for disk in archive.client.disks.list() if disk.node == "c"),
    )
    archive.peerd(f"files disks lost {number} --yes")
    archive.peerd("files disks add disk-c", on="c")
    wait_for("the new disk of c is used", lambda: archive.online() == set(NODES))
    archive.peerd("files watch --until-settled")
    show_nodes(archive)


def show_nodes(archive: Archive) -> None:
    """On which nodes the files are."""
    print()
    for nodes, count in sorted(archive.nodes_of_files().items()):
        print(f"{count:4} files on {nodes}")


def say(number: int, text: str) -> None:
    """Begin a step."""
    print(f"\n=== {number}. {text}", flush=True)


def wait_for(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + WITHIN
    while not holds():
        assert time.monotonic() < deadline, f"not within {WITHIN:g} s: {what}"
        time.sleep(0.3)


if __name__ == "__main__":
    main()
