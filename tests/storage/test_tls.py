"""Storage servers with TLS: nodes and clients verify them, and what is sent is the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from peerd import Client
from peerd.domain.file_errors import NoNodeTakes
from peerd.storage.transfer.errors import SourceFailed
from peerd.store.schema.tables import files
from tests.storage.nodes import SECRET, ServedNode, StorageCluster
from tests.store.file_steps import Catalogue
from tests.support.certificates import make_certificate


@pytest.fixture
def cluster(one_catalogue: Catalogue, tmp_path: Path) -> Iterator[StorageCluster]:
    """Two nodes with TLS, whose certificate this process does not trust."""
    tls = make_certificate(tmp_path)
    with ExitStack() as stack:
        nodes = [ServedNode(name, tmp_path, one_catalogue, tls=tls) for name in "ab"]
        for node in nodes:
            stack.enter_context(node.served())
        one_catalogue.bucket()
        cluster = StorageCluster(one_catalogue, nodes)
        cluster.refresh()
        yield cluster


def test_files_are_put_and_got_by_tls(cluster: StorageCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    content = os.urandom(9_000_000)
    (tmp_path / "film.mov").write_bytes(content)
    with Client(cluster.catalogue.store, secret=SECRET) as client:
        file = client.files.put(tmp_path / "film.mov", "films/film.mov")
        done = cluster.run_tasks()
        assert [name for _, name, _ in done] == ["copy"]
        assert sorted(cluster.catalogue.copies(file.id).values()) == ["stored", "stored"]
        with client.files.open("films/film.mov") as reader:
            reader.seek(1000)
            assert reader.read() == content[1000:]


def test_a_server_that_is_not_trusted_gets_nothing(cluster: StorageCluster, tmp_path: Path) -> None:
    (tmp_path / "film.mov").write_bytes(b"secret")
    with (
        Client(cluster.catalogue.store, secret=SECRET) as client,
        pytest.raises(NoNodeTakes, match="certificate verify failed"),
    ):
        client.files.put(tmp_path / "film.mov", "films/film.mov")
    node = cluster.nodes["a"]
    with pytest.raises(SourceFailed, match="certificate verify failed"):
        node.node.http.request("GET", node.url, "/health").__enter__()
    with pytest.raises(httpx.HTTPError):
        httpx.get(node.url.replace("https", "http") + "/health", timeout=10.0)
    assert cluster.catalogue.count(files) == 0
