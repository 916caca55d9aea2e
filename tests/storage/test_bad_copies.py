"""Copies that were bad and are whole again, and failures of which only one process of a node knows."""

from __future__ import annotations

import os
import shutil
import threading
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.files import CopyState
from peerd.operate.client import Client
from peerd.storage.disk.errors import DiskFailed, NotADisk
from peerd.storage.duties import DiskNotHere
from peerd.storage.node import StorageNode
from peerd.store.files.copies import copies_bad
from peerd.store.files.disks import list_disks
from peerd.store.schema.tables import disks, file_checks
from peerd.store.schema.types import seconds_from_now
from tests.storage.nodes import SECRET, NoRings, ServedNode, StorageCluster, ask_node


def put(cluster: StorageCluster, content: bytes) -> int:
    """A file with copies on two of the nodes; its id."""
    cluster.catalogue.bucket()
    answer = ask_node(cluster.nodes["a"], "PUT", "/files/films/f", content)
    cluster.run_tasks()
    return int(answer.json()["id"])


def holders(cluster: StorageCluster, file_id: int) -> list[ServedNode]:
    on = cluster.catalogue.copies(file_id)
    return [node for node in cluster.nodes.values() if node.disk in on]


def verify(cluster: StorageCluster, path: str = "films/f") -> Any:
    with Client(cluster.catalogue.store.url.render_as_string(hide_password=False)) as client:
        return client.files.verify(path)


def test_a_file_whose_copies_are_all_bad_is_read_again_when_an_operator_asks(cluster: StorageCluster) -> None:
    content = os.urandom(9_000)
    file_id = put(cluster, content)
    for node in holders(cluster, file_id):  # as a cable that was at fault, and is replaced
        cluster.catalogue.store.run(copies_bad, node.disk, [file_id])
    assert ask_node(cluster.nodes["a"], "GET", "/files/films/f").status_code == 503
    cluster.catalogue.change(file_checks, sa.true(), due_at=seconds_from_now(-1))
    assert cluster.run_tasks() == [], "by itself nothing is done: no copy is known that could be read"
    assert verify(cluster).verifications == 2
    done = cluster.run_tasks()
    assert [(name, outcome) for _, name, outcome in done] == [("verify", {"verified": 1, "bad": 0})] * 2
    assert set(cluster.catalogue.copies(file_id).values()) == {"stored"}
    assert ask_node(cluster.nodes["a"], "GET", "/files/films/f").content == content
    cluster.run_tasks()
    assert cluster.catalogue.count(file_checks) == 0


def test_a_copy_that_is_whole_in_quarantine_is_brought_back_and_one_that_is_not_stays(cluster: StorageCluster) -> None:
    content = os.urandom(9_000)
    file_id = put(cluster, content)
    good, rotten = holders(cluster, file_id)
    for node in (good, rotten):
        path = node.content_path(file_id)
        path.rename(node.paths[0] / "quarantine" / f"{file_id:016x}.mismatch.1700000000")
        cluster.catalogue.store.run(copies_bad, node.disk, [file_id])
    in_quarantine = rotten.paths[0] / "quarantine" / f"{file_id:016x}.mismatch.1700000000"
    in_quarantine.write_bytes(content[:-1])
    verify(cluster)
    done = {node: outcome for node, name, outcome in cluster.run_tasks() if name == "verify"}
    assert done[good.name] == {"verified": 1, "bad": 0}
    assert done[rotten.name] == {"verified": 0, "bad": 1}
    assert good.content_path(file_id).read_bytes() == content
    assert list((good.paths[0] / "quarantine").iterdir()) == []
    assert in_quarantine.exists()
    cluster.run_tasks()
    states = cluster.catalogue.copies(file_id)
    assert states[good.disk] == CopyState.STORED.value
    assert list(states.values()).count("stored") == 2, "the other copy is made anew"


def test_of_a_disk_whose_folder_is_empty_no_copy_is_called_bad(cluster: StorageCluster) -> None:
    file_id = put(cluster, os.urandom(9_000))
    gone = holders(cluster, file_id)[0]
    for entry in gone.paths[0].iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for again in range(2):
        with pytest.raises(DiskNotHere, match="is not usable on node") if again else pytest.raises(NotADisk):
            gone.duties.verify(gone.disk, [f"{file_id:016x}"], threading.Event(), lambda *_: None)
        gone.node.disks.refresh()
    assert set(cluster.catalogue.copies(file_id).values()) == {"stored"}


def test_a_failure_that_only_the_server_has_seen_survives_the_reports_of_the_manager(cluster: StorageCluster) -> None:
    a = cluster.nodes["a"]
    cluster.catalogue.bucket()
    manager = StorageNode(cluster.catalogue.store, "a", a.node.options, a.paths[0].parent, SECRET, NoRings())
    a.node.disks.failed(a.disk, DiskFailed(str(a.paths[0]), "write", "parts/x", "Input/output error"))

    def problem() -> str | None:
        return next(row for row in cluster.catalogue.store.read(list_disks) if row.id == a.disk).problem

    assert "Input/output error" in (problem() or ""), "it is written at once"
    answer = ask_node(a, "PUT", "/files/films/f", b"bytes")
    assert (answer.status_code, answer.json()["code"]) == (507, "NoDiskHasRoom")
    for _ in range(2):
        [status] = manager.disks.refresh()
        assert "Input/output error" in (problem() or "")
        assert "Input/output error" in (status.problem or "")
    assert manager.disks.for_new(1) == [], "the other process does not use it either"
    cluster.catalogue.change(disks, disks.c.id == a.disk, failed_until=seconds_from_now(-1))
    manager.disks.refresh()
    assert problem() is None
    assert [disk.number for disk in manager.disks.for_new(1)] == [a.disk]
    manager.http.close()
