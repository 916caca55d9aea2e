"""Files and disks as JSON for programs, and as cells for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from rich.text import Text

from peerd.cli.output import AlignedTable, Column, format_elapsed_short, right, wide
from peerd.domain.files import StoredFile
from peerd.domain.units import format_size
from peerd.operate.disks import DiskBalance
from peerd.store.files.disks import DiskCopies

HEALTH_STYLES: Final = {
    "whole": "green",
    "at-risk": "yellow",
    "unreadable": "bold red",
    "unreachable": "bold red",
    "lost": "bold red",
    "deleted": "bright_black",
    "unchecked": "cyan",
}
DISK_STYLES: Final = {"active": "green", "readonly": "cyan", "drain": "yellow", "lost": "bold red"}
SILENT_AFTER: Final = 20.0
"""Seconds since its last report after which a disk is shown as silent."""
DISK_COLUMNS: Final = ("disk", "node", "state", right("used"), right("size"), right("free"), "zone", wide("path"))

BALANCE_COLUMNS: Final = (
    "disk",
    "node",
    right("used"),
    right("than all"),
    right("too much"),
    "rebalance",
    wide("path"),
)


def file_as_json(file: StoredFile) -> dict[str, Any]:
    """A file with its id in hexadecimal digits, as its content is called on disks."""
    return {**msgspec.to_builtins(file), "id": f"{file.id:016x}"}


def styled_health(health: str) -> Text:
    """How a file is kept, in its colour."""
    return Text(health, HEALTH_STYLES.get(health, ""))


def disk_state(disk: DiskCopies) -> Text:
    """What a disk is used for, and what is wrong with it."""
    text = Text(disk.state, DISK_STYLES.get(disk.state, ""))
    if disk.state != "lost":
        if disk.silent_for is None:
            text.append(", never reported", "bold red")
        elif disk.silent_for > SILENT_AFTER:
            text.append(f", silent for {format_elapsed_short(disk.silent_for)}", "bold red")
        if disk.problem is not None:
            text.append(", cannot be written", "red")
    return text


def _sizes(disk: DiskCopies) -> list[str]:
    """The share that is used, the size, and the room; a disk that is lost has none of them any more."""
    if disk.state == "lost":
        return ["–", "–", "–"]
    used = f"{(disk.size - disk.free) / disk.size:.0%}" if disk.size else "–"
    return [used, format_size(disk.size), format_size(disk.free)]


def disks_table(disks: Sequence[DiskCopies], *, counted: bool = False) -> AlignedTable:
    """A row for each disk; with ``counted``, the number of its copies."""
    columns: list[Column | str] = [*DISK_COLUMNS]
    rows: list[list[Text | str]] = [
        [str(disk.id), disk.node or "–", disk_state(disk), *_sizes(disk), disk.zone or "–", disk.path] for disk in disks
    ]
    if counted:
        columns.insert(3, right("copies"))
        for row, disk in zip(rows, disks, strict=True):
            row.insert(3, _copies(disk.copies))
    return AlignedTable(columns, rows)


def balance_table(disks: Sequence[DiskBalance]) -> AlignedTable:
    """A row for each disk that can get copies: how full it is beside all of them, and what is to be moved from it."""
    rows: list[list[Text | str]] = []
    for disk in disks:
        state = Text("copies are moved", "cyan") if disk.is_rebalanced else Text("–")
        if disk.is_too_full and not disk.is_rebalanced:
            state = Text("too full", "yellow")
        excess = format_size(disk.excess) if disk.is_too_full else "–"
        shares = [f"{disk.used_share:.1%}", f"{round(disk.used_share - disk.mean, 3) + 0.0:+.1%}"]
        rows.append([str(disk.id), disk.node or "–", *shares, excess, state, disk.path])
    return AlignedTable(BALANCE_COLUMNS, rows)


def _copies(counts: dict[str, int]) -> Text:
    """Stored copies, and those of other states."""
    text = Text(f"{counts.get('stored', 0):,}")
    for state, style in (("planned", "cyan"), ("removing", "bright_black"), ("bad", "red")):
        if counts.get(state):
            text.append(f" {counts[state]:,} {state}", style)
    return text


def problems_of(disks: Sequence[DiskCopies]) -> list[Text]:
    """A line for each disk that cannot be written."""
    found = [disk for disk in disks if disk.problem is not None]
    return [Text.assemble((f"disk {disk.id}: ", "bold"), (disk.problem or "", "red")) for disk in found]
