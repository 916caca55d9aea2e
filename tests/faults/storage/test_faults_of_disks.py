"""A campaign damages no copy that a file needs, and none of a disk that is gone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from blake3 import blake3

from peerd.domain.files import CopyState
from tests.faults.storage.disk_audit import CatalogueRows, content_path
from tests.faults.storage.storage_faults import expendable_copies

pytestmark = pytest.mark.slow


def test_a_copy_is_expendable_while_all_others_are_whole(tmp_path: Path) -> None:
    paths = {disk_id: tmp_path / str(disk_id) for disk_id in (1, 2)}
    for root in paths.values():
        content_path(root, 7).parent.mkdir(parents=True)
        content_path(root, 7).write_bytes(b"film")
    stored = CopyState.STORED.value
    copies = {7: {1: stored, 2: stored}}
    file = SimpleNamespace(blake3=blake3(b"film").hexdigest())
    rows = CatalogueRows(files={7: file}, copies=copies, wanted={}, nodes={}, paths=paths)
    assert expendable_copies(rows, 7) == [1, 2]
    content_path(paths[2], 7).write_bytes(b"filn")
    assert expendable_copies(rows, 7) == [2], "the other one is the last good one"
    content_path(paths[2], 7).write_bytes(b"film")
    copies[7] = {1: stored, 2: stored, 3: stored}
    assert 3 not in expendable_copies(rows, 7), "its disk is lost: its rows are there until the grace is over"
    copies[7] = {1: stored, 2: CopyState.BAD.value}
    assert expendable_copies(rows, 7) == []
