"""``peerd files ls, stat, mv, rm, du, fsck`` and ``at-risk``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Argument, Option

from peerd.cli.arguments import YesOption
from peerd.cli.command import CommandContext
from peerd.cli.errors import CommandError, UsageError
from peerd.cli.files.disks import disks_table, problems_of
from peerd.cli.files.paths import below, is_folder, is_pattern, matching, split_path, target_key
from peerd.cli.output import UNKNOWN, AlignedTable, Fields, format_age, make_key_value_table, pluralize, right, wide
from peerd.domain.files import StoredFile
from peerd.domain.quoting import escape_line
from peerd.domain.units import format_size
from peerd.operate.files import FileStatus
from peerd.store.files.buckets import BucketUsage
from peerd.store.files.copies import FileCopy
from peerd.store.files.risks import RISKS, FileAtRisk

FilesArgument = Annotated[list[str], Argument(metavar="FILE", help="BUCKET/KEY.")]
HEALTH_STYLES: Final = {
    "whole": "green",
    "at-risk": "yellow",
    "unreadable": "bold red",
    "unreachable": "bold red",
    "lost": "bold red",
    "deleted": "bright_black",
    "unchecked": "cyan",
}
NOT_AT_RISK: Final = {"whole": "with a copy too many", "deleted": "being removed", "unchecked": "being checked"}
NO_BUCKET = "there is no bucket (peerd files buckets create)"
BUCKET_FIELDS: Final[Fields[BucketUsage]] = (
    ("bucket", lambda bucket: bucket.name),
    (right("files"), lambda bucket: f"{bucket.files:,}"),
    (right("bytes"), lambda bucket: format_size(bucket.bytes)),
    (right("quota"), lambda bucket: UNKNOWN if bucket.quota is None else format_size(bucket.quota)),
    ("class", lambda bucket: bucket.class_name),
)


def ls(
    context: CommandContext,
    path: Annotated[
        str | None, Argument(metavar="BUCKET[/PREFIX]", help="A bucket, a prefix, or a pattern such as 'films/*.mov'.")
    ] = None,
    recursive: Annotated[bool, Option("--recursive", "-r", help="All files below it, not only its folders.")] = False,
    limit: Annotated[int, Option(metavar="N", min=1, help="Entries at the most.")] = 1_000,
) -> None:
    """List files, and folders of files; without a word, the buckets."""
    if path is None:
        found = context.client.buckets.list()
        context.print_table(found, BUCKET_FIELDS, found, NO_BUCKET)
        return
    files, folders, is_more = _list(context, path, limit, recursive=recursive)
    if not files and folders == [f"{split_path(path)[1]}/"]:  # the word is the name of a folder
        files, folders, is_more = _list(context, f"{path}/", limit, recursive=recursive)
    answer = {"folders": folders, "files": [file_as_json(file) for file in files], "has_more": is_more}
    fields: Fields[StoredFile | str] = (
        (right("size"), lambda one: Text("–", "bright_black") if isinstance(one, str) else format_size(one.size)),
        ("put", lambda one: "" if isinstance(one, str) else format_age(one.created_at, context.now)),
        (wide("key"), lambda one: Text(escape_line(one), "bold blue") if isinstance(one, str) else one.key),
    )
    entries: list[StoredFile | str] = [*folders, *files]
    context.print_table(answer, fields, entries, f"there is no file {path}")
    if is_more:
        context.warn_of_more(limit)


def stat(context: CommandContext, files: FilesArgument) -> None:
    """Show files: their current version, its copies, and how it is kept."""
    found = [context.client.files.stat(path) for path in files]
    answer = [{**msgspec.to_builtins(one), "file": file_as_json(one.file)} for one in found]
    context.print_result(answer, lambda: Group(*[_status(one, context.now) for one in found]))


def mv(
    context: CommandContext,
    source: Annotated[str, Argument(metavar="FILE", help="BUCKET/KEY.")],
    target: Annotated[str, Argument(metavar="TARGET", help="BUCKET/KEY; below a folder, it keeps its last part.")],
) -> None:
    """Give a file another name; one that the target has is replaced. No content is copied."""
    path = target_key(target, source.rpartition("/")[2])
    moved = context.client.files.move(source, path)
    context.print_result(file_as_json(moved), f"{source} is {path} now")


def rm(
    context: CommandContext,
    files: Annotated[list[str], Argument(metavar="FILE", help="BUCKET/KEY, a pattern, or a folder.")],
    recursive: Annotated[bool, Option("--recursive", "-r", help="Folders, with all files below them.")] = False,
    yes: YesOption = False,
) -> None:
    """Remove files. There is no way back; their copies are removed from the disks soon."""
    removed, size = 0, 0
    for word in files:
        if is_folder(word) and not is_pattern(word):
            if not recursive:
                raise UsageError(f"{word} stands for all files below it", "give --recursive")
            _confirm(context, below(context.client, word), word, yes=yes)
            for count, freed in _remove_below(context, word):
                removed, size = removed + count, size + freed
        else:
            names = [word]
            if is_pattern(word):
                names = [f"{file.bucket}/{file.key}" for file in matching(context.client, word)]
                if not names:
                    raise CommandError(f"there is no file {word}", f"peerd files ls {split_path(word)[0]}")
                _confirm(context, iter(names), word, yes=yes)
            for name in names:
                size += context.client.files.remove(name).size
                removed += 1
    answer = {"removed": removed, "bytes": size}
    context.print_result(answer, f"removed {pluralize(removed, 'file')} of {format_size(size)}")


def du(context: CommandContext) -> None:
    """Show what the buckets have, and what is on the disks."""
    usage = context.client.files.usage()
    tables: list[RenderableType] = [
        AlignedTable(BUCKET_FIELDS, usage.buckets) if usage.buckets else Text(NO_BUCKET),
        Text(),
        disks_table(usage.disks, counted=True) if usage.disks else Text("there is no disk (peerd files disks add)"),
    ]
    context.print_result(usage, Group(*tables, *problems_of(usage.disks)))


def fsck(
    context: CommandContext,
    bucket: Annotated[str | None, Argument(metavar="BUCKET", help="Only its files.")] = None,
    verify: Annotated[bool, Option("--verify", help="Have all copies read and verified, too.")] = False,
) -> None:
    """Have all files checked: what each needs is decided anew, and done by tasks of the queue storage.

    peerd files watch shows how it goes on, and peerd files at-risk what was found.
    """
    files, verifications, after = 0, 0, None
    while True:
        batch = context.client.files.fsck(bucket, verify=verify, after=after)
        files, verifications = files + batch.files, verifications + batch.verifications
        if (after := batch.next_after) is None:
            break
    answer = {"files": files, "verifications": verifications}
    more = f", and {verifications:,} of their copies are verified" if verify else ""
    context.print_result(answer, f"{pluralize(files, 'file')} will be checked{more}")


def verify(context: CommandContext, files: FilesArgument) -> None:
    """Have all copies of files read and compared, also bad ones: a copy that is whole counts again.

    What is in quarantine is examined too, and brought back if it is whole.
    """
    asked = [context.client.files.verify(path) for path in files]
    answer = {"files": len(files), "verifications": sum(one.verifications for one in asked)}
    copies = f"{answer['verifications']:,} {'copy' if answer['verifications'] == 1 else 'copies'}"
    context.print_result(answer, f"{copies} of {pluralize(len(files), 'file')} will be read (peerd files stat)")


def at_risk(
    context: CommandContext,
    health: Annotated[
        str | None, Option(metavar="HEALTH", help="Only at-risk, unreachable, lost, whole or unchecked.")
    ] = None,
    limit: Annotated[int, Option(metavar="N", min=1, max=1000, help="Files at the most.")] = 100,
) -> None:
    """List files that have fewer copies than they should, or none, and say what cannot be read now.

    Exit status 1 if there are such files, or such that cannot be read; a put that is under way does not count.
    """
    found, away = context.client.files.at_risk(health, limit=limit), context.client.files.overview().away
    answer = {
        **msgspec.to_builtins(found),
        "files": [file_as_json(file) for file in found.files],
        "away": msgspec.to_builtins(away),
    }
    counts = Text.assemble(*_counts(found.counts))
    if not counts:
        counts = Text("all files are whole", "green") if away is None else Text("no file lacks a copy yet")
    now = [] if away is None else [Text(away.text, "bold red" if away.files.files else "yellow")]
    fields: Fields[FileAtRisk] = (
        ("health", lambda file: styled_health(file.health)),
        (right("size"), lambda file: format_size(file.size)),
        ("blocked", lambda file: file.blocked or UNKNOWN),
        (wide("file"), lambda file: f"{file.bucket}/{file.key}"),
    )
    table = [AlignedTable(fields, found.files)] if found.files else []
    failed = any(found.counts.get(one) for one in RISKS) or (away is not None and bool(away.files.files))
    context.print_result(answer, *now, counts, *table, failed=failed)


def file_as_json(file: StoredFile | FileAtRisk) -> dict[str, Any]:
    """A file with its id in hexadecimal digits, as its content is called on disks."""
    return {**msgspec.to_builtins(file), "id": f"{file.id:016x}"}


def styled_health(health: str) -> Text:
    """How a file is kept, in its colour."""
    return Text(health, HEALTH_STYLES.get(health, ""))


def _counts(counts: dict[str, int]) -> Iterator[tuple[str, str]]:
    for health, count in sorted(counts.items()):
        yield f"{count:,} {NOT_AT_RISK.get(health, health)}  ", str(styled_health(health).style)


def _list(
    context: CommandContext, path: str, limit: int, *, recursive: bool
) -> tuple[list[StoredFile], list[str], bool]:
    """Files, folders, and whether there are more."""
    if is_pattern(path):
        matched = list(islice(matching(context.client, path), limit + 1))
        return matched[:limit], [], len(matched) > limit
    bucket, prefix = split_path(path)
    files: list[StoredFile] = []
    folders: list[str] = []
    after: str | None = ""
    while after is not None and len(files) + len(folders) < limit:
        most = min(1_000, limit - len(files) - len(folders))
        page = context.client.files.list(bucket, prefix, after=after, delimiter="" if recursive else "/", limit=most)
        files += page.files
        folders += page.prefixes
        after = page.next_after
    return files, folders, after is not None


def _status(status: FileStatus, now: datetime) -> RenderableType:
    file = status.file
    health = Text.assemble(styled_health(status.health), f", {status.good} of {status.wanted} copies")
    pairs: list[tuple[str, Text | str | None]] = [
        ("file", Text(escape_line(f"{file.bucket}/{file.key}"), "bold")),
        ("health", health),
        ("blocked", Text(status.blocked, "red") if status.blocked else None),
        ("size", f"{format_size(file.size)} ({file.size:,} bytes)"),
        ("put", f"{format_age(file.created_at, now)}, version {file.version}"),
        ("class", file.class_name),
        ("type", file.content_type or "–"),
        ("blake3", file.blake3),
        ("id", f"{file.id:016x}"),
        ("expires", format_age(file.expires_at, now) if file.expires_at else None),
        *[(f"meta {name}", value) for name, value in sorted(file.metadata.items())],
    ]
    fields: Fields[FileCopy] = (
        ("disk", lambda copy: str(copy.disk)),
        ("node", lambda copy: copy.node or UNKNOWN),
        ("copy", lambda copy: copy.state),
        ("verified", lambda copy: format_age(copy.verified_at, now)),
        (wide("path"), lambda copy: copy.path),
    )
    return Group(make_key_value_table(pairs), AlignedTable(fields, status.copies))


def _confirm(context: CommandContext, found: Iterator[Any], word: str, *, yes: bool) -> None:
    if yes:
        return
    count = sum(1 for _ in islice(found, 10_001))
    what = f"{'10,000+' if count > 10_000 else f'{count:,}'} {'file' if count == 1 else 'files'}"
    context.confirm(f"remove {what} of {word}?")


def _remove_below(context: CommandContext, word: str) -> Iterator[tuple[int, int]]:
    bucket, prefix = split_path(word)
    has_more = True
    while has_more:
        batch = context.client.files.remove_below(bucket, prefix)
        yield batch.files, batch.bytes
        has_more = batch.has_more
