"""``peerd tasks logs``: what the handlers of a task have logged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import msgspec
from rich.text import Text
from typer import Argument, Option

from peerd.cli.command import CommandContext
from peerd.cli.following import PAGE, read_pages
from peerd.domain.log_line import TaskLogLine
from peerd.domain.quoting import escape_and_indent, escape_line, escape_text
from peerd.store.tasks.log_lines import LastLines, LogPage

LEVEL_STYLES: Final = {"debug": "bright_black", "warning": "yellow", "error": "red", "critical": "bold red"}
SHOWN_WITH_TASK: Final = 5
"""Lines that `peerd tasks show` prints."""


def logs(
    context: CommandContext,
    task_id: Annotated[int, Argument(metavar="ID", help="The task.")],
    follow: Annotated[bool, Option("--follow", "-f", help="Print new lines until the task has ended.")] = False,
    attempt: Annotated[int | None, Option(metavar="NUMBER", min=1, help="Only of this attempt, from 1.")] = None,
    level: Annotated[str | None, Option(metavar="LEVEL", help="Only of this level or a higher one.")] = None,
) -> None:
    """Show what the handlers of a task have logged, and follow it.

    Times are the database's, in UTC. Where lines were not kept, because an attempt logged too many, it says so.
    With --json: an object for each line.
    """
    writer = LineRenderer(has_gaps=level is None)

    def read(after: str | None) -> LogPage:
        return context.client.tasks.logs(task_id, after=after, limit=PAGE, attempt=attempt, level=level)

    for page in read_pages(read, lambda page: page.ended or not follow):
        for line in page.items:
            if context.as_json:
                context.print_json_line(msgspec.structs.asdict(line) | {"cursor": line.cursor})
            else:
                for text in writer.render(line):
                    context.out.print(text, soft_wrap=True)
    if not context.as_json and writer.count == 0:
        context.out.print("no lines")


class LineRenderer:
    """Renders the lines of a task, one after the other. What a handler has logged cannot look like another line."""

    def __init__(self, *, has_gaps: bool) -> None:
        self.count = 0
        self._has_gaps = has_gaps
        self._lease: int | None = None
        self._next = 0

    def render(self, line: TaskLogLine) -> Iterator[Text]:
        """The line, after what must be said before it."""
        self.count += 1
        if line.lease != self._lease:
            self._lease, self._next = line.lease, 0
            yield Text(f"attempt {line.attempt} (lease {line.lease})", "bold")
        if self._has_gaps and line.sequence > self._next:
            yield Text(f"… {line.sequence - self._next:,} lines were not kept", "bright_black")
        self._next = line.sequence + 1
        yield render_line(line)


def render_line(line: TaskLogLine) -> Text:
    """Time, level, logger, message and fields; further lines of the message are indented."""
    first, _, rest = line.message.partition("\n")
    fields = "".join(f" {escape_line(name)}={escape_line(str(value))}" for name, value in (line.fields or {}).items())
    head = f"{line.at:%H:%M:%S}.{line.at.microsecond // 1000:03d} "
    text = Text.assemble(
        (head, "bright_black"),
        (f"{escape_line(line.level):8} ", LEVEL_STYLES.get(line.level, "")),
        (f"{escape_line(line.logger)}: ", "cyan"),
        escape_text(first),
        (fields, "bright_black"),
    )
    return text.append("\n" + escape_and_indent(rest)) if rest else text


def render_last_lines(last: LastLines) -> Iterable[Text]:
    """The last lines of the latest attempt, below how many lines there are."""
    if not last.items:
        return
    shown = len(last.items)
    yield Text(f"log lines: {last.count:,}, the last of attempt {last.items[-1].attempt}", "bold")
    yield from (Text.assemble("  ", render_line(line)) for line in last.items)
    if last.count > shown:
        yield Text("  (peerd tasks logs shows all)", "bright_black")
