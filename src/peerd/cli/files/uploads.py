"""The commands ``peerd files uploads …``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from rich.text import Text
from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.files.paths import split_path
from peerd.cli.output import format_age, right, wide
from peerd.domain.units import format_size
from peerd.store.files.listing import UnfinishedUpload

app = new_app("List and abort uploads: files of which only a part was put.")

COLUMNS = ("upload", right("received"), right("size"), "last part", "by", wide("file"))


@command(app, "list")
def list_uploads(
    context: CommandContext,
    path: Annotated[
        str | None, Argument(metavar="BUCKET[/PREFIX]", help="Only uploads of a bucket, or below a prefix.")
    ] = None,
    limit: Annotated[int, Option(metavar="N", min=1, help="Uploads at the most.")] = 1_000,
) -> None:
    """List uploads that have not ended, of S3's clients too.

    A put of the same file goes on with its upload by itself. One that gets no part for a week is aborted.
    """
    bucket, prefix = (None, "") if path is None else split_path(path)
    found: list[UnfinishedUpload] = []
    after: str | None = ""
    while after is not None and len(found) < limit:
        page = context.client.files.uploads.list(bucket, prefix, after=after, limit=min(1_000, limit - len(found)))
        found += page.uploads
        after = page.next_after
    answer: dict[str, Any] = {"uploads": msgspec.to_builtins(found), "has_more": after is not None}
    context.print_table(answer, COLUMNS, (_row(one, context.now) for one in found), "there is no unfinished upload")
    if after is not None:
        context.warn_of_more(limit)


@command(app)
def abort(
    context: CommandContext,
    ids: Annotated[list[str], Argument(metavar="UPLOAD", help="Uploads, as peerd files uploads list shows them.")],
) -> None:
    """Abort uploads: their nodes remove what they have of them, within seconds. A put that still runs begins anew."""
    context.act_on_each(ids, context.client.files.uploads.abort, "aborted", "is aborted")


def _row(upload: UnfinishedUpload, now: datetime) -> list[Text | str]:
    return [
        upload.id,
        format_size(upload.received),
        "–" if upload.size is None else format_size(upload.size),
        format_age(upload.touched_at, now),
        f"{upload.by or '–'}{' (S3)' if upload.is_of_s3 else ''}",
        f"{upload.bucket}/{upload.key}",
    ]
