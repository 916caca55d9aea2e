"""``peerd files put`` and ``get``, and ``peerd files uploads …``: files that were put in part."""

from __future__ import annotations

import mimetypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError, UsageError
from peerd.cli.files.catalogue import file_as_json
from peerd.cli.files.paths import expand, is_folder, local_name, split_path, target_key
from peerd.cli.output import UNKNOWN, Fields, format_age, right, sanitize, wide
from peerd.domain.files import StoredFile
from peerd.domain.quoting import escape_line
from peerd.domain.units import format_size
from peerd.store.files.listing import UnfinishedUpload

STANDARD_STREAM = "-"
RecursiveOption = Annotated[bool, Option("--recursive", "-r", help="Folders, with all that is below them.")]


@dataclass(frozen=True, kw_only=True)
class StoredWith:
    """The options that say what is stored with a content."""

    class_name: Annotated[str | None, Option("--class", metavar="CLASS", help="How it is kept.")] = None
    content_type: Annotated[
        str | None, Option(metavar="TYPE", help="E.g. video/mp4; default: by the ending of the key.")
    ] = None
    meta: Annotated[list[str] | None, Option("--meta", metavar="NAME=VALUE", help="Metadata; may be repeated.")] = None
    expires_in: Annotated[
        str | None, Option(metavar="DURATION", help="Remove it after this time by itself, e.g. 7d.")
    ] = None
    only_new: Annotated[bool, Option("--only-new", help="Refuse to replace a file.")] = False

    def as_arguments(self, key: str) -> dict[str, Any]:
        """The arguments of `files.put`."""
        return {
            "class_name": self.class_name,
            "content_type": self.content_type or mimetypes.guess_type(key)[0],
            "metadata": dict(_name_and_value(word) for word in self.meta or ()),
            "expires_in": self.expires_in,
            "only_new": self.only_new,
        }


def put(
    context: CommandContext,
    words: Annotated[list[str], Argument(metavar="SOURCE… TARGET", help="Files (- is stdin), then BUCKET/KEY.")],
    stored_with: StoredWith,
    recursive: RecursiveOption = False,
) -> None:
    """Store files of this machine.

    A target that ends with / is a folder: peerd files put a.mov b.mov films/2026/ stores films/2026/a.mov and
    films/2026/b.mov. A file that is there is replaced. The command ends when as many copies are durable as the class
    wants.

    A file above 64 MiB is sent in parts. If a connection or a node fails, it goes on behind the last part; after
    Ctrl-C, a kill or a reboot the same command does, too, unless the file has changed since: then it is sent anew.
    peerd files uploads list shows what is unfinished.
    """
    *sources, target = words
    if not sources:
        raise UsageError("where to? there is one word only", "peerd files put a.mov films/2026/")
    if len(sources) > 1 and not is_folder(target):
        raise UsageError(f"{target} is one file, and there are several sources", "end it with /")
    found = list(_to_put(sources, target, recursive=recursive))
    results = _Results(context, "put", len(found))
    with _make_progress(context) as progress:
        for source, path in found:
            with results.reporting(path), _bar(progress, path) as report:
                opened = sys.stdin.buffer if source is None else source
                more = stored_with.as_arguments(path)
                results.add(context.client.files.put(opened, path, progress=report, **more), path)
    results.end()


def get(
    context: CommandContext,
    words: Annotated[list[str], Argument(metavar="FILE… [TARGET]", help="BUCKET/KEY, then a path (- is stdout).")],
    recursive: RecursiveOption = False,
) -> None:
    """Write files to this machine, verified.

    Of several words the last is the target: peerd files get films/a.mov /tmp, or 'films/2026/*.mov' folder/, or
    films/2026/ folder/ --recursive. Without a target, files are written to the working directory. A file has its name
    when it is whole: it is written beside it, then renamed.
    """
    sources, target = (words[:-1], words[-1]) if len(words) > 1 else (words, ".")
    found = [one for source in sources for one in expand(context.client, source, recursive=recursive)]
    if target == STANDARD_STREAM:
        if context.as_json:
            raise UsageError("stdout cannot have both the content and JSON", "leave --json out")
        for path, _ in found:
            context.client.files.get(path, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    folder = Path(target)
    is_into_folder = recursive or len(found) > 1 or target.endswith("/") or folder.is_dir()
    results = _Results(context, "got", len(found))
    with _make_progress(context) as progress:
        for path, name in found:
            with results.reporting(path), _bar(progress, path) as report:
                written = local_name(folder, name) if is_into_folder else folder
                if is_into_folder:
                    written.parent.mkdir(parents=True, exist_ok=True)
                results.add(context.client.files.get(path, written, progress=report), str(written))
    results.end()


class _Results:
    """The outcomes of a command for several files: what fails is reported, and the others are done.

    Args:
        context: of the command.
        verb: what was done.
        count: the number of files; the error of a single one becomes the error of the command.
    """

    def __init__(self, context: CommandContext, verb: str, count: int) -> None:
        self._context = context
        self._verb = verb
        self._done: list[dict[str, Any]] = []
        self._failed: list[dict[str, Any]] = []
        self._error: CommandError | None = None
        self._count = count

    @contextmanager
    def reporting(self, path: str) -> Iterator[None]:
        """Within it, an expected error is kept, and ends nothing."""
        try:
            yield
        except Exception as error:
            failure = self._context.to_command_error(error)
            if failure is None:
                raise
            self._keep(path, failure)

    def add(self, file: StoredFile, place: str) -> None:
        """A file was transferred to a place."""
        self._done.append({**file_as_json(file), "to": place})
        if not self._context.as_json:
            self._context.print_result(None, f"{escape_line(place)}  {format_size(file.size)}")

    def _keep(self, path: str, failure: CommandError) -> None:
        self._error = failure
        self._failed.append({"path": path, **failure.as_json()})
        if self._count > 1 and not self._context.as_json:
            self._context.print_error(CommandError(f"{path}: {failure.message}", failure.remedy))

    def end(self) -> None:
        """Print JSON; raise the error of a single file, or end with its status."""
        if self._error is not None and self._count == 1:
            raise self._error
        if self._context.as_json:
            self._context.print_json_line({self._verb: self._done, "failed": self._failed})
        if self._failed:
            raise typer.Exit(1)


def _to_put(sources: Sequence[str], target: str, *, recursive: bool) -> Iterator[tuple[Path | None, str]]:
    """What is put, None for stdin, and the names of the files."""
    for word in sources:
        if word == STANDARD_STREAM:
            if is_folder(target):
                raise UsageError("what stdin gives has no name", "write BUCKET/KEY")
            yield None, target
            continue
        source = Path(word)
        if not source.is_dir():
            yield source, target_key(target, source.name)
        elif not recursive:
            raise UsageError(f"{word} is a folder", "give --recursive")
        else:
            base = source.resolve().name
            prefix = target.rstrip("/") if is_folder(target) else target
            for file in sorted(source.rglob("*")):
                if file.is_file():
                    yield file, f"{prefix}/{base}/{file.relative_to(source).as_posix()}"


def _name_and_value(word: str) -> tuple[str, str]:
    name, separator, value = word.partition("=")
    if not separator:
        raise UsageError(f"--meta {word}: there is no value", "write NAME=VALUE")
    return name, value


# ---------------------------------------------------------------- progress


Report = Callable[[int, int | None], None]
LONGEST_NAME = 40


def _make_progress(context: CommandContext) -> Progress:
    """A bar for the file that is transferred now, on stderr, if it is a terminal and the output is for people."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    is_shown = context.err.is_terminal and not context.as_json
    return Progress(*columns, console=context.err, transient=True, disable=not is_shown)


@contextmanager
def _bar(progress: Progress, name: str) -> Iterator[Report]:
    """A bar for one file; it goes away with the end of ``with``."""
    shown = sanitize(name)
    short = shown if len(shown) <= LONGEST_NAME else f"…{shown[1 - LONGEST_NAME :]}"
    bar = progress.add_task(short, total=None)
    try:
        yield lambda done, size: progress.update(bar, completed=done, total=size)
    finally:
        progress.remove_task(bar)


# ---------------------------------------------------------------- unfinished uploads


uploads = new_app("List and abort uploads: files that were put in part.")


@command(uploads, "list")
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


@command(uploads, "abort")
def abort_uploads(
    context: CommandContext,
    ids: Annotated[list[str], Argument(metavar="UPLOAD", help="Uploads, as peerd files uploads list shows them.")],
) -> None:
    """Abort uploads: their nodes remove what they have of them, within seconds. A put that still runs begins anew."""
    context.act_on_each(ids, context.client.files.uploads.abort, "aborted", "is aborted")
