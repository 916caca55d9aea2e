"""The commands ``peerd files buckets …``."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.files.catalogue import buckets_table
from peerd.domain.files import DEFAULT_CLASS
from peerd.domain.units import format_size
from peerd.store.files.buckets import Bucket

app = new_app("List, create, change and delete buckets.")

NameArgument = Annotated[str, Argument(metavar="BUCKET", help="3 to 63 of a-z, 0-9, - and single dots.")]
QuotaOption = Annotated[str | None, Option(metavar="SIZE", help="The most bytes of its files, e.g. 500GB.")]


@command(app, "list")
def list_buckets(context: CommandContext) -> None:
    """List all buckets, with the number and the bytes of their files."""
    found = context.client.buckets.list()
    context.print_result(found, buckets_table(found) if found else "there is no bucket (peerd files buckets create)")


@command(app)
def create(
    context: CommandContext,
    name: NameArgument,
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
    name: NameArgument,
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
def delete(context: CommandContext, name: NameArgument) -> None:
    """Delete a bucket without files."""
    context.client.buckets.delete(name)
    context.print_result({"deleted": name}, f"{name} is deleted")


def _describe(bucket: Bucket) -> str:
    quota = "no quota" if bucket.quota is None else f"at most {format_size(bucket.quota)}"
    return f"class {bucket.class_name}, {quota}"
