"""The commands ``peerd files uploads …``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.files.paths import split_path
from peerd.cli.output import UNKNOWN, Fields, format_age, right, wide
from peerd.domain.units import format_size
from peerd.store.files.listing import UnfinishedUpload

app = new_app("List and abort uploads: files of which only a part was put.")


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
    fields: Fields[UnfinishedUpload] = (
        ("upload", lambda upload: upload.id),
        (right("received"), lambda upload: format_size(upload.received)),
        (right("size"), lambda upload: UNKNOWN if upload.size is None else format_size(upload.size)),
        ("last part", lambda upload: format_age(upload.touched_at, context.now)),
        ("by", lambda upload: f"{upload.by or UNKNOWN}{' (S3)' if upload.is_of_s3 else ''}"),
        (wide("file"), lambda upload: f"{upload.bucket}/{upload.key}"),
    )
    context.print_table(answer, fields, found, "there is no unfinished upload")
    if after is not None:
        context.warn_of_more(limit)


@command(app)
def abort(
    context: CommandContext,
    ids: Annotated[list[str], Argument(metavar="UPLOAD", help="Uploads, as peerd files uploads list shows them.")],
) -> None:
    """Abort uploads: their nodes remove what they have of them, within seconds. A put that still runs begins anew."""
    context.act_on_each(ids, context.client.files.uploads.abort, "aborted", "is aborted")
