"""The commands ``peerd files classes …``."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.output import AlignedTable, Column, right

app = new_app("List, set and remove classes of files.")

NameArgument = Annotated[str, Argument(metavar="CLASS", help="1 to 63 of a-z, 0-9, - and _.")]


@command(app, "list")
def list_classes(context: CommandContext) -> None:
    """List all classes: how many copies, on how many zones, and how many before a put is acknowledged."""
    found = context.client.file_classes.list()
    rows = [
        [
            one.name,
            str(one.copies),
            str(one.durable),
            str(one.zones),
            _or_dash(one.object_copies),
        ]
        for one in found
    ]
    titles = ("copies", "durable", "zones", "in object stores")
    columns: list[Column | str] = ["class", *(right(title) for title in titles)]
    context.print_result(found, AlignedTable(columns, rows))


@command(app, "set")
def set_class(
    context: CommandContext,
    name: NameArgument,
    copies: Annotated[int, Option(metavar="N", help="How many copies a file has, each on another node.")] = 2,
    durable: Annotated[int, Option(metavar="N", help="How many of them exist before a put is acknowledged.")] = 1,
    zones: Annotated[int, Option(metavar="N", help="On how many zones they are, as far as there are so many.")] = 1,
    object_copies: Annotated[
        int | None, Option(metavar="N", help="How many of the copies are in object stores; by default, anywhere.")
    ] = None,
) -> None:
    """Create a class, or change one; after a change, peerd files fsck has the files checked that have it."""
    made = context.client.file_classes.set(
        name, copies=copies, durable=durable, zones=zones, object_copies=object_copies
    )
    text = f"{name}: {made.copies} copies, {made.durable} before a put is acknowledged, on {made.zones} zones"
    if made.object_copies is not None:
        text += f", {made.object_copies} of them in object stores"
    context.print_result(made, text)


@command(app)
def remove(context: CommandContext, name: NameArgument) -> None:
    """Remove a class that no bucket and no file has; default gets its first values again."""
    context.client.file_classes.remove(name)
    context.print_result({"removed": name}, f"{name} is removed")


def _or_dash(number: int | None) -> str:
    return "–" if number is None else str(number)
