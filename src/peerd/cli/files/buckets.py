"""The commands ``peerd files buckets …`` and ``peerd files classes …``."""

from __future__ import annotations

from typing import Annotated, Final

from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.files.catalogue import BUCKET_FIELDS, NO_BUCKET
from peerd.cli.output import UNKNOWN, Fields, right
from peerd.domain.files import DEFAULT_CLASS, FileClass
from peerd.domain.units import format_size
from peerd.store.files.buckets import Bucket

app = new_app("List, create, change and delete buckets.")
classes = new_app("List, set and remove classes of files.")

BucketArgument = Annotated[str, Argument(metavar="BUCKET", help="3 to 63 of a-z, 0-9, - and single dots.")]
ClassArgument = Annotated[str, Argument(metavar="CLASS", help="1 to 63 of a-z, 0-9, - and _.")]
QuotaOption = Annotated[str | None, Option(metavar="SIZE", help="The most bytes of its files, e.g. 500GB.")]
CLASS_FIELDS: Final[Fields[FileClass]] = (
    ("class", lambda one: one.name),
    (right("copies"), lambda one: str(one.copies)),
    (right("durable"), lambda one: str(one.durable)),
    (right("zones"), lambda one: str(one.zones)),
    (right("in object stores"), lambda one: UNKNOWN if one.object_copies is None else str(one.object_copies)),
)


@command(app, "list")
def list_buckets(context: CommandContext) -> None:
    """List all buckets, with the number and the bytes of their files."""
    found = context.client.buckets.list()
    context.print_table(found, BUCKET_FIELDS, found, NO_BUCKET)


@command(app)
def create(
    context: CommandContext,
    name: BucketArgument,
    class_name: Annotated[
        str, Option("--class", metavar="CLASS", help="The class of files that are put without one.")
    ] = DEFAULT_CLASS,
    quota: QuotaOption = None,
) -> None:
    """Create a bucket."""
    made = context.client.buckets.create(name, class_name=class_name, quota=quota)
    context.print_result(made, f"{name}: {_describe(made)}")


@command(app)
def change(
    context: CommandContext,
    name: BucketArgument,
    class_name: Annotated[
        str | None, Option("--class", metavar="CLASS", help="The class of files that are put from now on.")
    ] = None,
    quota: QuotaOption = None,
    no_quota: Annotated[bool, Option("--no-quota", help="Remove the quota.")] = False,
) -> None:
    """Change the class of files that are put from now on, or the quota."""
    changed = context.client.buckets.change(name, class_name=class_name, quota=quota, no_quota=no_quota)
    context.print_result(changed, f"{name}: {_describe(changed)}")


@command(app)
def delete(context: CommandContext, name: BucketArgument) -> None:
    """Delete a bucket without files."""
    context.client.buckets.delete(name)
    context.print_result({"deleted": name}, f"{name} is deleted")


def _describe(bucket: Bucket) -> str:
    quota = "no quota" if bucket.quota is None else f"at most {format_size(bucket.quota)}"
    return f"class {bucket.class_name}, {quota}"


@command(classes, "list")
def list_classes(context: CommandContext) -> None:
    """List all classes: how many copies, on how many zones, and how many before a put is acknowledged."""
    found = context.client.file_classes.list()
    context.print_table(found, CLASS_FIELDS, found, "there is no class")


@command(classes, "set")
def set_class(
    context: CommandContext,
    name: ClassArgument,
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


@command(classes, "remove")
def remove_class(context: CommandContext, name: ClassArgument) -> None:
    """Remove a class that no bucket and no file has; default gets its first values again."""
    context.client.file_classes.remove(name)
    context.print_result({"removed": name}, f"{name} is removed")
