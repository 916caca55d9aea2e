"""The commands ``peerd files keys …``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from rich.text import Text
from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.output import AlignedTable, format_age, right, wide
from peerd.domain.access import FileAccessKey, FileRights

app = new_app("List, create and revoke access keys of S3's clients.")

COLUMNS = ("access key", "name", "state", right("last used"), "rights", wide("files"))


@command(app, "list")
def list_keys(context: CommandContext) -> None:
    """List all access keys, without their secrets."""
    keys = context.client.files.keys.list()
    context.print_result(
        msgspec.to_builtins(keys),
        lambda: _keys_table(keys, context.client.now()) if keys else Text("there are no access keys"),
    )


@command(app)
def create(
    context: CommandContext,
    name: Annotated[str, Argument(metavar="NAME", help="Whose it is, or what for.")],
    rights: Annotated[
        str, Option("--rights", metavar="RIGHTS", help="read, write (put and delete without reading) or read-write.")
    ] = FileRights.ALL.value,
    scopes: Annotated[
        list[str] | None,
        Option("--scope", metavar="BUCKET[/PREFIX]", help="Only these files, e.g. team-*/films/. Repeatable."),
    ] = None,
    expires: Annotated[
        str | None, Option("--expires", metavar="DURATION", help="For how long it is valid, e.g. 90d; default: ever.")
    ] = None,
) -> None:
    """Create an access key, and print it with its secret, which is shown this once.

    peerd files keys create backup --rights write --scope backups/laptop/ --expires 90d
    """
    made = context.client.files.keys.create(name, rights, scopes=scopes or None, expires_in=expires)
    answer = msgspec.to_builtins(made.key) | {"secret": made.secret}
    context.print_result(answer, Text(f"access key  {made.key.id}"), Text(f"secret      {made.secret}"))


@command(app)
def revoke(
    context: CommandContext,
    ids: Annotated[list[str], Argument(metavar="KEY", help="Access keys, as clients name them: PEERD….")],
) -> None:
    """Revoke access keys at once, also in presigned URLs."""
    context.act_on_each(ids, context.client.files.keys.revoke, "revoked", "is revoked")


def _keys_table(keys: list[FileAccessKey], now: datetime) -> AlignedTable:
    return AlignedTable(COLUMNS, [_row(key, now) for key in keys])


def _row(key: FileAccessKey, now: datetime) -> list[Text | str]:
    files = "all" if key.scopes is None else ", ".join(key.scopes)
    return [key.id, key.name, _state(key, now), format_age(key.last_used_at, now), key.rights.value, files]


def _state(key: FileAccessKey, now: datetime) -> Text:
    if key.is_valid:
        ends = "" if key.expires_at is None else f", ends {format_age(key.expires_at, now)}"
        return Text(f"valid{ends}", "green")
    return Text("expired" if key.revoked_at is None else "revoked", "bright_black")
