"""Tables of files and disks."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from peerd.cli.files.formats import disks_table
from peerd.store.files.usage import DiskCopies


def disk(**changed: Any) -> DiskCopies:
    values: dict[str, Any] = {
        "id": 1, "node": "a", "zone": None, "path": "/srv/disk-1", "url": "http://a:7480", "kind": "folder",
        "state": "active", "size": 1000, "free": 250, "silent_for": 1.0, "problem": None, "walked_for": None,
        "copies": {},
    }  # fmt: skip
    return DiskCopies(**{**values, **changed})


def test_a_lost_disk_has_neither_use_nor_room() -> None:
    console = Console(file=StringIO(), width=100)
    console.print(disks_table([disk(), disk(id=2, state="lost")]))
    assert isinstance(console.file, StringIO)
    _, kept, lost = [line.split() for line in console.file.getvalue().splitlines() if line.strip()]
    assert kept[:4] == ["1", "a", "active", "75%"]
    assert lost == ["2", "a", "lost", "–", "–", "–", "–", "/srv/disk-1"]
