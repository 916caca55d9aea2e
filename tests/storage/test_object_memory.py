"""The memory of a node does not grow with the files that it brings to an object store, or reads from there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from peerd.domain.files import DiskKind, FileClass
from peerd.doorbell.cluster_clock import ClusterClock
from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.storage.object_disk.place import create_disk_at
from peerd.storage.transfer.node_http import NodeHttp
from peerd.storage.transfer.node_signature import NodeSigner
from peerd.store.files.classes import set_class
from peerd.store.files.disks import cluster_identity, register_disk
from tests.storage.nodes import SECRET, ServedNode
from tests.store.file_steps import Catalogue
from tests.support.object_store import ObjectStoreServer, moto_server

pytestmark = pytest.mark.slow
MIB = 1024 * 1024
SIZES = 64 * MIB, 320 * MIB
BLOCK = os.urandom(MIB)
MAY_GROW_BY = 100 * 1000**2
ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectStoreServer]:
    with moto_server(tmp_path) as server:
        yield server


class MeasuredNode:
    """The node in the process.

    Args:
        process: of it.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = self._line()
        self._http = NodeHttp(NodeSigner(SECRET, ClusterClock()))

    def peak_of(self, step: Callable[[], object]) -> int:
        """The peak of its memory during a step, in bytes."""
        folder = Path(f"/proc/{self._process.pid}")
        (folder / "clear_refs").write_text("5")  # the peak is that from now on
        step()
        [line] = [one for one in (folder / "status").read_text().splitlines() if one.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    def put(self, key: str, size: int, url: str | None = None) -> str:
        """Put a file through it, or another node; its id."""
        headers = {"content-length": str(size)}
        with self._http.upload(url or self.url, f"/files/films/{key}", blocks(size), headers) as response:
            text = response.read()
            assert response.status == 201, text
            return str(msgspec.json.decode(text)["id"])

    def get(self, key: str, size: int) -> None:
        """Get a file from it, and compare its bytes."""
        hasher, buffer = blake3(), bytearray(MIB)
        with self._http.request("GET", self.url, f"/files/films/{key}") as response:
            assert response.status == 200
            while count := response.readinto(buffer):
                hasher.update(memoryview(buffer)[:count])
        assert hasher.digest() == digest_of(size)

    def copy(self, disk: int, file: str, size: int) -> None:
        """Have it copy a file to a disk."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{disk} {file}\n")
        self._process.stdin.flush()
        assert msgspec.json.decode(self._line()) == {"copied": 1, "bytes": size}

    def close(self) -> None:
        self._http.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def blocks(size: int) -> Iterator[bytes]:
    for number in range(size // MIB):
        yield number.to_bytes(8, "big") + BLOCK[8:]


def digest_of(size: int) -> bytes:
    hasher = blake3()
    for block in blocks(size):
        hasher.update(block)
    return hasher.digest()


def store_disk(catalogue: Catalogue, options: ObjectDiskOptions) -> int:
    """Make a disk in the object store; its number."""
    identity = create_disk_at(options, catalogue.store.run(cluster_identity)).disk
    return catalogue.store.run(lambda c: register_disk(c, identity, path=options.place, node_id=None, kind=DiskKind.S3))


def test_puts_copies_and_gets_of_a_large_file_need_no_more_memory_than_those_of_a_small_one(
    one_catalogue: Catalogue, server: ObjectStoreServer, tmp_path: Path
) -> None:
    options = server.options(capacity=10**10)
    disk = store_disk(one_catalogue, options)
    one_catalogue.bucket()
    keeper = ServedNode("a", tmp_path, one_catalogue)
    url = one_catalogue.store.url.render_as_string(hide_password=False)
    words = [sys.executable, "-m", "tests.storage.object_memory_process", url, str(tmp_path)]
    words.append(msgspec.json.encode(options).decode())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    peaks: dict[int, dict[str, int]] = {}
    with (
        keeper.served(),
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        ) as process,
    ):
        node = MeasuredNode(process)
        for size in SIZES:
            one_catalogue.store.run(set_class, FileClass(name="default", copies=1, object_copies=1))
            peaks[size] = {"put": node.peak_of(partial(node.put, f"f{size}", size))}
            peaks[size]["get"] = node.peak_of(partial(node.get, f"f{size}", size))
            one_catalogue.store.run(set_class, FileClass(name="default", copies=2, object_copies=1))
            keeper.node.disks.refresh()
            file = node.put(f"kept-{size}", size, keeper.url)
            peaks[size]["copy"] = node.peak_of(partial(node.copy, disk, file, size))
        node.close()
    small, large = (peaks[size] for size in SIZES)
    grown = {name: f"{small[name] // MIB} to {large[name] // MIB} MiB" for name in small}
    assert all(large[name] - small[name] < MAY_GROW_BY for name in small), grown
