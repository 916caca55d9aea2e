"""The memory of a node does not grow with the files that it brings to an object store, or reads from there.

This module is the program of the process that is measured, too: ``python -m tests.storage.test_object_memory``. It
serves a node without a disk of its own, and puts, gets and copies a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from peerd.domain.files import DiskKind, FileClass
from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.storage.object_disk.place import create_disk_at
from peerd.store.connection.database import Database
from peerd.store.files.classes import set_class
from peerd.store.files.disks import cluster_identity, register_disk
from tests.storage.nodes import ServedNode
from tests.store.file_steps import Catalogue
from tests.support.object_store import moto_server

MIB = 1024 * 1024
SIZES = 64 * MIB, 320 * MIB
MAY_GROW_BY = 100 * 1000**2
ROOT = Path(__file__).parents[2]


def blocks(size: int) -> Iterator[bytes]:
    for number in range(size // MIB):
        yield number.to_bytes(8, "big") * (MIB // 8)


@pytest.mark.slow
def test_puts_copies_and_gets_of_a_large_file_need_no_more_memory_than_those_of_a_small_one(
    one_catalogue: Catalogue, tmp_path: Path
) -> None:
    store = one_catalogue.store
    with moto_server(tmp_path) as server:
        options = server.options(capacity=10**10)
        identity = create_disk_at(options, store.run(cluster_identity)).disk
        disk = store.run(lambda c: register_disk(c, identity, path=options.place, node_id=None, kind=DiskKind.S3))
        one_catalogue.bucket()
        words = [sys.executable, "-m", "tests.storage.test_object_memory", store.url.render_as_string()]
        words += [str(tmp_path), str(disk), msgspec.json.encode(options).decode()]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        ran = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    small, large = msgspec.json.decode(ran.stdout, type=list[dict[str, int]])
    grown = {name: f"{small[name] // MIB} to {large[name] // MIB} MiB" for name in small}
    assert all(large[name] - small[name] < MAY_GROW_BY for name in small), grown


def peak_of(step: Callable[[], object]) -> int:
    """The peak of the memory of this process during a step, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that from now on
    step()
    [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def peaks_of(size: int, node: ServedNode, keeper: ServedNode, catalogue: Catalogue, disk: int) -> dict[str, int]:
    """Those of a put to the object store and a get from there, and of a copy of what the keeper has."""
    http = node.node.http

    def put(key: str, url: str) -> str:
        with http.upload(url, f"/files/films/{key}", blocks(size), {"content-length": str(size)}) as response:
            text = response.read()
            assert response.status == 201, text
            return str(msgspec.json.decode(text)["id"])

    def get() -> None:
        hasher, buffer = blake3(), bytearray(MIB)
        with http.request("GET", node.url, f"/files/films/f{size}") as response:
            while count := response.readinto(buffer):
                hasher.update(memoryview(buffer)[:count])
        expected = blake3()
        for block in blocks(size):
            expected.update(block)
        assert hasher.digest() == expected.digest()

    catalogue.store.run(set_class, FileClass(name="default", copies=1, object_copies=1))
    peaks = {"put": peak_of(lambda: put(f"f{size}", node.url)), "get": peak_of(get)}
    catalogue.store.run(set_class, FileClass(name="default", copies=2, object_copies=1))
    keeper.node.disks.refresh()
    file = put(f"kept-{size}", keeper.url)
    copied: list[dict[str, int]] = []
    stop = threading.Event()
    peaks["copy"] = peak_of(lambda: copied.append(node.duties.copy(disk, [file], stop, lambda *_: None)))
    assert copied == [{"copied": 1, "bytes": size}]
    return peaks


def main(url: str, folder: str, disk: str, options: str) -> None:
    catalogue = Catalogue(Database(url))
    store = msgspec.json.decode(options, type=ObjectDiskOptions)
    keeper = ServedNode("a", Path(folder), catalogue)
    node = ServedNode("b", Path(folder), catalogue, disks=0, object_stores=(store,))
    with keeper.served(), node.served():
        node.node.disks.refresh()
        peaks = [peaks_of(size, node, keeper, catalogue, int(disk)) for size in SIZES]
        sys.stdout.write(msgspec.json.encode(peaks).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
