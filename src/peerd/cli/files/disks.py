"""The commands ``peerd files disks …``, ``drain``, ``undrain`` and ``rebalance``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
from rich.console import Group
from rich.text import Text
from typer import Argument, Option

from peerd.cli.arguments import YesOption
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError, UsageError
from peerd.cli.output import UNKNOWN, AlignedTable, Fields, format_elapsed_short, pluralize, right, wide
from peerd.config.storage import object_store_options
from peerd.domain.errors import NodeNotFound
from peerd.domain.units import format_size
from peerd.operate.disks import DiskBalance
from peerd.storage.disk.errors import DiskError, DiskNotEmpty
from peerd.storage.disk.identity import DiskIdentity, create_disk, read_disk_identity
from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.storage.object_disk.place import create_disk_at
from peerd.store.files.disks import DiskCopies, cluster_identity

app = new_app("Add, list, set and remove disks.")

DISK_STYLES: Final = {"active": "green", "readonly": "cyan", "drain": "yellow", "lost": "bold red"}
SILENT_AFTER: Final = 20.0
"""Seconds since its last report after which a disk is shown as silent."""

DisksArgument = Annotated[list[int], Argument(metavar="DISK", help="Numbers of disks.")]


@command(app, of_this_machine=True)
def add(
    context: CommandContext,
    path: Annotated[
        Path | None, Argument(metavar="PATH", help="An existing, empty folder: the root of a file system.")
    ] = None,
    object_store: Annotated[
        str | None, Option(metavar="NAME", help="A place of [storage.object_stores] that has nothing below its prefix.")
    ] = None,
    move: Annotated[
        bool, Option("--move", help="Also of a folder that is a disk of another node: it was moved.")
    ] = False,
) -> None:
    """Make a disk of an empty folder of this machine, or of an empty place in an object store; the catalogue gets it.

    The node must have been started once. If this was interrupted, it can be repeated.
    """
    if path is not None and object_store is None:
        _add_folder(context, path, move=move)
    elif object_store is not None and path is None:
        _add_object_store(context, object_store)
    else:
        raise UsageError("a disk is one place", "give PATH, or --object-store NAME")


def _add_object_store(context: CommandContext, name: str) -> None:
    places = {one["name"]: one for one in object_store_options(context.settings.storage)}
    if name not in places:
        known = ", ".join(sorted(places)) or "none"
        raise CommandError(f"there is no object store {name} in [storage.object_stores]", f"known are: {known}")
    options, client = msgspec.convert(places[name], ObjectDiskOptions), context.client
    identity = create_disk_at(options, client.database.run(cluster_identity))
    number = client.disks.register_object_store(identity.disk, place=options.place)
    answer = {"disk": number, "path": options.place, "object_store": name}
    context.print_result(answer, f"disk {number} is {options.place}, of all nodes that have this place")


def _add_folder(context: CommandContext, path: Path, *, move: bool) -> None:
    settings, client = context.settings, context.client
    folder = Path(os.path.normpath(Path.cwd() / path.expanduser()))
    try:
        client.nodes.get(settings.node.name)
    except NodeNotFound:
        raise CommandError(
            f"node {settings.node.name} was never started, so that no disk can be entered for it", "peerd start"
        ) from None
    cluster = client.database.run(cluster_identity)
    try:
        identity = create_disk(folder, cluster)
    except DiskNotEmpty as error:
        found = _identity_at(folder)
        if found is None or found.cluster != cluster:
            raise error from None
        identity = found
    number = client.disks.register(identity.disk, path=str(folder), node=settings.node.name, move=move)
    configured = {os.path.normpath(one) for one in settings.storage.disks}
    answer = {"disk": number, "path": str(folder), "node": settings.node.name, "configured": str(folder) in configured}
    context.print_result(answer, f"disk {number} is {folder} of node {settings.node.name}")
    if str(folder) not in configured:
        context.print_warning(
            f"[storage] disks of peerd.toml does not have {folder}, so the node does not use it: add it, and restart"
        )


def _identity_at(folder: Path) -> DiskIdentity | None:
    """The identity of the disk at a path, if there is one."""
    try:
        return read_disk_identity(folder)
    except DiskError:
        return None


@command(app, "list")
def list_disks(context: CommandContext) -> None:
    """List all disks, with their size, and what is free without the reserve."""
    found = context.client.disks.list()
    empty = "there is no disk (peerd files disks add)"
    context.print_result(found, Group(disks_table(found), *problems_of(found)) if found else empty)


@command(app)
def activate(context: CommandContext, disks: DisksArgument) -> None:
    """Use disks for copies, also ones that were drained or read only."""
    _set(context, disks, context.client.disks.activate, "is active: it gets copies")


@command(app)
def readonly(context: CommandContext, disks: DisksArgument) -> None:
    """Keep the copies of disks, and read them, but make no new ones on them."""
    _set(context, disks, context.client.disks.readonly, "is read only: it gets no new copies")


@command(app)
def lost(
    context: CommandContext,
    disks: DisksArgument,
    yes: YesOption = False,
) -> None:
    """Declare that disks will not come back, so that their copies are made elsewhere at once. There is no way back.

    Without it, the copies are made elsewhere when it has been silent for the grace of the storage section.
    """
    if not yes:
        only_here = "without another copy that can be read now"
        named = ", ".join(f"disk {one} ({only_here}: {context.client.disks.last_copies(one)})" for one in disks)
        context.confirm(f"declare {named} lost for ever?")
    _set(context, disks, context.client.disks.lost, "is lost: its files are copied from their other copies")


@command(app)
def remove(context: CommandContext, disks: DisksArgument) -> None:
    """Remove disks without copies from the catalogue; their folders stay as they are."""
    for number in disks:
        context.client.disks.remove(number)
    context.print_result({"removed": disks}, *[f"disk {number} is removed" for number in disks])


def drain(context: CommandContext, disks: DisksArgument) -> None:
    """Make the copies of disks anew on others, and then remove them there; peerd files watch shows how it goes on."""
    _set(context, disks, context.client.disks.drain, "is drained: its copies are made elsewhere, then removed from it")


def undrain(context: CommandContext, disks: DisksArgument) -> None:
    """Use drained disks again."""
    _set(context, disks, context.client.disks.activate, "is active: it gets copies")


def rebalance(
    context: CommandContext,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only show how full the disks are, and what would be moved.")
    ] = False,
    stop: Annotated[
        bool, Option("--stop", help="Move no more copies; those that are being moved are finished.")
    ] = False,
) -> None:
    """Move copies from disks that are fuller than the others; peerd files watch shows how it goes on.

    No file has fewer copies because of it. A disk may be fuller than all together by 5 % of its size.
    """
    if stop:
        count = context.client.disks.stop_rebalance()
        context.print_result({"stopped": count}, f"copies are moved from no disk now; they were from {count}")
        return
    begun = [] if dry_run else context.client.disks.rebalance()
    found = context.client.disks.balance()
    if not found:
        raise CommandError("no disk that can get copies is online", "peerd files disks list")
    outcome = "no disk is too full"
    if dry_run and any(one.is_too_full for one in found):
        outcome = f"{format_size(sum(one.excess for one in found if one.is_too_full))} would be moved"
    elif begun:
        outcome = f"{format_size(sum(one.excess for one in begun))} are moved from {pluralize(len(begun), 'disk')}"
    context.print_result(found, balance_table(found), outcome)


def _set(context: CommandContext, disks: list[int], change: Callable[[int], DiskCopies], outcome: str) -> None:
    changed = [change(number) for number in disks]
    context.print_result(changed, *[f"disk {disk.id} {outcome}" for disk in changed])


# ---------------------------------------------------------------- tables


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


def disks_table(disks: Sequence[DiskCopies], *, counted: bool = False) -> AlignedTable:
    """A row for each disk; with ``counted``, the number of its copies. A lost disk has no sizes any more."""
    copies: Fields[DiskCopies] = ((right("copies"), lambda disk: _copies(disk.copies)),)
    fields: Fields[DiskCopies] = (
        ("disk", lambda disk: str(disk.id)),
        ("node", lambda disk: disk.node or UNKNOWN),
        ("state", disk_state),
        *(copies if counted else ()),
        (right("used"), _used_share),
        (right("size"), lambda disk: UNKNOWN if disk.state == "lost" else format_size(disk.size)),
        (right("free"), lambda disk: UNKNOWN if disk.state == "lost" else format_size(disk.free)),
        ("zone", lambda disk: disk.zone or UNKNOWN),
        (wide("path"), lambda disk: disk.path),
    )
    return AlignedTable(fields, disks)


def _used_share(disk: DiskCopies) -> str:
    has_sizes = disk.state != "lost" and disk.size
    return f"{(disk.size - disk.free) / disk.size:.0%}" if has_sizes else UNKNOWN


def balance_table(disks: Sequence[DiskBalance]) -> AlignedTable:
    """A row for each disk that can get copies: how full it is beside all of them, and what is to be moved from it."""
    fields: Fields[DiskBalance] = (
        ("disk", lambda disk: str(disk.id)),
        ("node", lambda disk: disk.node or UNKNOWN),
        (right("used"), lambda disk: f"{disk.used_share:.1%}"),
        (right("than all"), lambda disk: f"{round(disk.used_share - disk.mean, 3) + 0.0:+.1%}"),
        (right("too much"), lambda disk: format_size(disk.excess) if disk.is_too_full else UNKNOWN),
        ("rebalance", _rebalance_state),
        (wide("path"), lambda disk: disk.path),
    )
    return AlignedTable(fields, disks)


def _rebalance_state(disk: DiskBalance) -> Text:
    if disk.is_rebalanced:
        return Text("copies are moved", "cyan")
    return Text("too full", "yellow") if disk.is_too_full else Text(UNKNOWN)


def _copies(counts: dict[str, int]) -> Text:
    """The number of stored copies, and the numbers in other states."""
    text = Text(f"{counts.get('stored', 0):,}")
    for state, style in (("planned", "cyan"), ("removing", "bright_black"), ("bad", "red")):
        if counts.get(state):
            text.append(f" {counts[state]:,} {state}", style)
    return text


def problems_of(disks: Sequence[DiskCopies]) -> list[Text]:
    """A line for each disk that cannot be written."""
    found = [disk for disk in disks if disk.problem is not None]
    return [Text.assemble((f"disk {disk.id}: ", "bold"), (disk.problem or "", "red")) for disk in found]
