"""The memory of a node does not grow with the files that it brings to an object store, or reads from there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from tests.storage.breaking import MIB
from tests.storage.nodes import ServedNode
from tests.storage.object_cluster import Build
from tests.support.object_store import ObjectStoreServer


def blocks(size: int) -> Iterator[bytes]:
    for number in range(size // MIB):
        yield number.to_bytes(8, "big") * (MIB // 8)


def growth_in(step: Callable[[], object]) -> int:
    """By how many bytes the memory of this process is larger at its peak in a step than before."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that from now on

    def peak() -> int:
        [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    before = peak()
    step()
    return peak() - before


def put(node: ServedNode, key: str, size: int) -> str:
    with node.node.http.upload(
        node.url, f"/files/films/{key}", blocks(size), {"content-length": str(size)}
    ) as response:
        return f"{int(msgspec.json.decode(response.read())['id']):016x}"


@pytest.mark.slow
def test_puts_copies_and_gets_of_a_large_file_need_no_more_memory_than_those_of_a_small_one(
    build: Build, moto: ObjectStoreServer
) -> None:
    cluster = build(moto.options(capacity=10**10), folders="a", stores="b")
    keeper, node = cluster.nodes["a"], cluster.nodes["b"]

    def get(size: int) -> None:
        found, expected, buffer = blake3(), blake3(), bytearray(MIB)
        with node.node.http.request("GET", node.url, f"/files/films/f{size}") as response:
            while count := response.readinto(buffer):
                found.update(memoryview(buffer)[:count])
        for block in blocks(size):
            expected.update(block)
        assert found.digest() == expected.digest()

    def copy(size: int) -> None:
        cluster.want(copies=2, object_copies=1)
        file = put(keeper, f"kept-{size}", size)
        copied = node.duties.copy(cluster.store_disk, [file], threading.Event(), lambda *_: None)
        assert copied == {"copied": 1, "bytes": size}

    def growth(size: int) -> dict[str, int]:
        cluster.want(copies=1, object_copies=1)
        steps: dict[str, Callable[[], object]] = {
            "put": lambda: put(node, f"f{size}", size),
            "get": lambda: get(size),
            "copy": lambda: copy(size),
        }
        return {name: growth_in(step) for name, step in steps.items()}

    small, large = growth(64 * MIB), growth(320 * MIB)
    moto.empty()
    assert all(large[name] - small[name] < 100 * 1000**2 for name in small), (small, large)
