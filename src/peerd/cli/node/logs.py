"""``peerd logs``."""

from __future__ import annotations

import json
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer
from rich.text import Text
from typer import Argument, Option

from peerd.cli.arguments import RunDirectoryOption
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError, UsageError
from peerd.cli.output import sanitize
from peerd.cli.tasks.log_lines import render_line
from peerd.config.problems import suggest_similar
from peerd.runtime.observability.log_file import rotated_path
from peerd.supervision import control_client

app = new_app()

POLL_INTERVAL = 0.2


@command(app)
def logs(
    context: CommandContext,
    slots: Annotated[
        list[str] | None, Argument(metavar="SLOT", help="Only these slots (video-1) or kinds (video).")
    ] = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    lines: Annotated[int, Option("--lines", "-n", min=0, metavar="LINES", help="How many of the last.")] = 20,
    search: Annotated[str | None, Option(metavar="TEXT", help="Search the log lines of all tasks.")] = None,
    since: Annotated[str, Option(metavar="DURATION", help="How far back to search.")] = "1d",
    after: Annotated[str | None, Option(metavar="CURSOR", help="Go on with a search that has ended there.")] = None,
    run_directory: RunDirectoryOption = None,
) -> None:
    """Show the end of this node's log, and follow it; or search what the handlers of all nodes have logged.

    peerd logs --search "no space left" --since 1h

    A node in the background has a log file; any other has one if logging.file is set. Rotated files are read too when
    the current one has too few lines, and rotations are followed. Lines without a process name belong to the entry
    above them.
    """
    if search is not None:
        _search(context, search, since, after, lines)
        return
    context.keep_to_this_machine()
    names = slots or []
    node_status = _read_status(context, run_directory)
    path = _log_file(context, run_directory, node_status)
    end = end_of_lines(path)
    known = _known_kinds(context, run_directory, node_status) if names else set()
    for name in names:
        _require_known(name, known, path, end)
    for line in last_lines(path, lines, LineFilter(names), end):
        _print_line(context, line)
    if follow:
        _follow(context, path, end, LineFilter(names))


def _search(context: CommandContext, text: str, since: str, after: str | None, most: int) -> None:
    found = context.client.tasks.search_logs(text, since=since, after=after, limit=max(1, most))
    rows = [
        Text.assemble((f"{one.line.at:%m-%d} task {one.task_id} ", "bold"), render_line(one.line))
        for one in found.items
    ]
    context.print_result(found, *(rows or [Text("no line has this text")]))
    if found.searched_to is not None:
        context.print_hint(f"searched back to {found.searched_to:%F %T} UTC; to go on: --after {found.next}")


def _read_status(context: CommandContext, run_directory: Path | None) -> dict[str, Any] | None:
    try:
        return control_client.status(run_directory or context.settings.node.run_directory)
    except control_client.MasterNotRunning:
        return None


def _log_file(context: CommandContext, run_directory: Path | None, node_status: Mapping[str, Any] | None) -> Path:
    """The log of the running node; without one, the configured log."""
    if node_status is None:
        path = run_directory / "peerd.log" if run_directory else context.settings.log_file
    elif node_status["log_file"] is None:
        raise CommandError(
            f"this node has no log file: master {node_status['pid']} writes to its stderr",
            "see its terminal, or journalctl, or set [logging] file; peerd start always writes a log file",
        )
    else:
        path = Path(node_status["log_file"])
    if not path.exists():
        raise CommandError(f"there is no log {path}", "peerd start writes one")
    return path


def _require_known(name: str, known: set[str], path: Path, end: int) -> None:
    """Refuse a name that is neither a known kind, nor a slot of one, nor in this log."""
    if {name, _kind_of(name)} & known or last_lines(path, 1, LineFilter([name]), end):
        return
    existing = f"; there are: {', '.join(sorted(known))}" if known else ""
    message = f"no line of this log is of {name}{existing}"
    raise UsageError(message, suggest_similar(name, known))


def _known_kinds(
    context: CommandContext, run_directory: Path | None, node_status: Mapping[str, Any] | None
) -> set[str]:
    """The kinds that run, or else those that are configured."""
    if node_status is not None:
        return {_kind_of(slot["name"]) for slot in node_status["slots"]}
    if run_directory is not None:  # the configuration may be unreadable
        return set()
    settings = context.settings
    return {"agent", "manager", *settings.workers, *settings.web, *settings.gateway, *settings.commands}


def _kind_of(slot: str) -> str:
    return re.sub(r"-\d+$", "", slot)


def _follow(context: CommandContext, path: Path, begin: int, line_filter: LineFilter) -> None:
    with closing(LogFollower(path, begin)) as follower:
        while True:
            for line in follower.read(time.monotonic()):
                if line_filter(line):
                    _print_line(context, line)
            time.sleep(POLL_INTERVAL)


def _print_line(context: CommandContext, line: str) -> None:
    """Print a line; as JSON its own object, or an object with the line as text."""
    if not context.as_json:
        typer.echo(sanitize(line))
        return
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    context.print_json_line(entry if isinstance(entry, dict) else {"text": line})


# ---------------------------------------------------------------- reading the file


BLOCK: Final = 64 * 1024
ROTATION_LINGER: Final = 5.0
"""Seconds that a rotated file is still read: a process may not have opened the new one yet."""
_ENTRY_START: Final = re.compile(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d+ |\{|peerd ")
"""The start of an entry; other lines, such as a traceback, belong to the entry before."""


class LineFilter:
    """Selects the lines of slots. Call it with one line after the other: an entry may have several.

    Args:
        slots: names of slots, or of kinds, which stand for all of their slots; none: all lines.

    Example:
        >>> line_filter = LineFilter(["video"])
        >>> [line_filter(line) for line in ("12:00:00.1 a slot=video-1", "Traceback", "12:00:01.3 b slot=mail-1")]
        [True, True, False]
    """

    def __init__(self, slots: Sequence[str]) -> None:
        names = "|".join(rf"{re.escape(slot)}(-\d+)?" for slot in slots)
        self._names = re.compile(rf"(?<![\w.-])({names})(?![\w-]|\.\w)" if slots else "")
        self._shown = not slots

    def __call__(self, line: str) -> bool:
        """Whether the next line is selected."""
        named = self._names.search(line) is not None
        if _ENTRY_START.match(line):
            self._shown = named
        return self._shown or named


def last_lines(path: Path, count: int, line_filter: LineFilter, end: int) -> list[str]:
    """The last selected lines of the first `end` bytes of a log, and of its rotated files."""
    found: deque[str] = deque()
    for entry in _entries_newest_first(path, end):
        found.extendleft(reversed([line for line in entry if line_filter(line)]))
        if len(found) >= count:
            break
    return list(found)[-count:] if count else []


def end_of_lines(path: Path) -> int:
    """Where the last whole line of a file ends."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - BLOCK)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            end = begin
    return 0


@dataclass(slots=True)
class _OpenLogFile:
    file: IO[bytes]
    rest: bytes = b""
    until: float | None = None


class LogFollower:
    """Reads the lines that are appended to a log after the offset `begin`, over its rotations."""

    def __init__(self, path: Path, begin: int) -> None:
        self._path = path
        self._files = [_OpenLogFile(path.open("rb"))]
        self._files[0].file.seek(begin)

    def read(self, now: float) -> Iterator[str]:
        """The complete lines since the last call; `now` is a time in seconds."""
        self._open_new_file(now)
        for log in list(self._files):
            while data := log.file.read(BLOCK):
                *lines, log.rest = (log.rest + data).split(b"\n")
                yield from map(_decode, lines)
            if log.until is not None and now >= log.until:
                log.file.close()
                self._files.remove(log)

    def close(self) -> None:
        """Close the files."""
        for log in self._files:
            log.file.close()

    def _open_new_file(self, now: float) -> None:
        current = self._files[-1]
        try:
            if os.path.samestat(self._path.stat(), os.fstat(current.file.fileno())):
                return
            self._files.append(_OpenLogFile(self._path.open("rb")))
        except FileNotFoundError:  # between its rotation and the creation of the new one
            return
        current.until = now + ROTATION_LINGER


def _entries_newest_first(path: Path, end: int) -> Iterator[Iterable[str]]:
    file, number = path, 0
    while file.exists():
        entry: deque[str] = deque()
        for line in _read_backwards(file, end_of_lines(file) if number else end):
            entry.appendleft(line)
            if _ENTRY_START.match(line):
                yield entry
                entry = deque()
        yield entry
        number += 1
        file = rotated_path(path, number)


def _read_backwards(path: Path, end: int) -> Iterator[str]:
    """The lines of the first `end` bytes, which are complete lines, from the last to the first."""
    if not end:
        return
    with path.open("rb") as file:
        rest, end = b"", end - 1
        while end:
            begin = max(0, end - BLOCK)
            file.seek(begin)
            rest, *lines = (file.read(end - begin) + rest).split(b"\n")
            yield from map(_decode, reversed(lines))
            end = begin
        yield _decode(rest)


def _decode(line: bytes) -> str:
    return line.decode(errors="replace")
