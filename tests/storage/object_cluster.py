"""Nodes of which some have an object store."""

from __future__ import annotations

from collections.abc import Callable

from peerd.domain.files import FileClass
from peerd.store.files.classes import set_class
from tests.storage.nodes import ServedNode, StorageCluster, ask_node
from tests.store.file_steps import Catalogue
from tests.support.object_store import ObjectStoreServer

PREFIX = "peerd/one"


class ObjectCluster(StorageCluster):
    """Nodes, and an object store that some of them use: a disk with this number."""

    def __init__(self, catalogue: Catalogue, nodes: list[ServedNode], store_disk: int) -> None:
        super().__init__(catalogue, nodes)
        self.store_disk = store_disk

    def want(self, **copies: int) -> None:
        """How many copies files have, and how many of them in object stores."""
        self.catalogue.store.run(set_class, FileClass(name="default", **copies))

    def put(self, node: str, key: str, content: bytes) -> int:
        """Put a file; its id."""
        answer = ask_node(self.nodes[node], "PUT", f"/files/films/{key}", content)
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])

    def get(self, node: str, key: str, **headers: str) -> bytes:
        answer = ask_node(self.nodes[node], "GET", f"/files/films/{key}", b"", **headers)
        assert answer.status_code in {200, 206}, answer.text
        return answer.content


Build = Callable[..., ObjectCluster]


def names_of(server: ObjectStoreServer, prefix: str = PREFIX) -> list[str]:
    return [name.removeprefix(f"{prefix}/") for name in server.names() if "peerd-disk.json" not in name]
