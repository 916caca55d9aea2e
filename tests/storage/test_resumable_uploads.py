"""Puts in parts, over real servers: durable part by part, gone on with after failures, whole or not at all."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from blake3 import blake3

from peerd import Client
from peerd.domain.file_errors import FileConditionFailed, UploadBroken
from peerd.storage import resuming_put
from peerd.storage.maintenance import StorageMaintenance
from peerd.storage.transfer.node_http import NodeHttp
from peerd.storage.transfer.node_signature import NodeSigner
from peerd.doorbell.cluster_clock import ClusterClock
from peerd.store.files import resumable_uploads
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import disks, file_uploads
from tests.storage.nodes import SECRET, ServedNode, StorageCluster
from tests.storage.test_client import serve_at, tracemalloc_peak
from tests.storage.test_server_files import BreakingUploads

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are small, tries follow each other soon, and nodes do not report their addresses again."""
    monkeypatch.setattr(resuming_put, "FILE_PART", 2 * MIB)
    monkeypatch.setattr(resuming_put, "STREAM_PART", 2 * MIB)
    monkeypatch.setattr(resuming_put, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr("peerd.storage.server.app.REFRESH_EVERY", 3_600.0)


@pytest.fixture
def client(cluster: StorageCluster) -> Iterator[Client]:
    cluster.catalogue.bucket()
    cluster.refresh()
    with Client(cluster.catalogue.store, secret=SECRET) as client:
        yield client


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A file of three chunks, and of five parts."""
    path = tmp_path / "film.mov"
    path.write_bytes(os.urandom(9_000_000))
    return path


def put(client: Client, source: Any, path: str = "films/f", **more: Any) -> Any:
    return client.files.put(source, path, parts_above=MIB, **more)


def got(client: Client, path: str = "films/f") -> bytes:
    target = io.BytesIO()
    client.files.get(path, target)
    return target.getvalue()


def unfinished(cluster: StorageCluster) -> list[resumable_uploads.UnfinishedUpload]:
    return cluster.catalogue.store.read(resumable_uploads.list_unfinished, None, "", "", 100).uploads


def holder(cluster: StorageCluster) -> ServedNode:
    """The node with the part of the only upload."""
    [upload] = unfinished(cluster)
    return next(node for node in cluster.nodes.values() if node.disk == upload.disk)


def parts_of(cluster: StorageCluster) -> list[Path]:
    return [path for node in cluster.nodes.values() for path in (node.paths[0] / "parts").iterdir()]


def test_a_file_is_put_in_parts_and_is_as_if_put_at_once(client: Client, cluster: StorageCluster, film: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    more = {"content_type": "video/quicktime", "metadata": {"camera": "ü 7"}, "expires_in": "7d"}
    stored = put(client, film, **more, progress=lambda done, size: seen.append((done, size)))
    assert (stored.size, stored.version, stored.content_type) == (9_000_000, 1, "video/quicktime")
    assert stored.blake3 == blake3(film.read_bytes()).hexdigest()
    assert (stored.metadata, stored.expires_at is None) == ({"camera": "ü 7"}, False)
    assert seen[-1] == (9_000_000, 9_000_000)
    assert got(client) == film.read_bytes()
    assert unfinished(cluster) == []
    assert parts_of(cluster) == []
    cluster.run_tasks()
    assert client.files.stat("films/f").health == "whole"
    [entry] = client.audit.list(operation="files.put").entries
    assert (entry.target, entry.actor) == ("films/f", client.actor.name)
