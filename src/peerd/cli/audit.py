"""``peerd audit``: the entries of the audit log, page by page or as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from rich.text import Text
from typer import Option

from peerd.cli.arguments import AfterOption, LimitOption
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError
from peerd.cli.following import PAGE, read_pages
from peerd.cli.output import Column, Fields, right, sanitize, wide
from peerd.operate.client import Client
from peerd.store.audit import REFUSED, AuditEntry, AuditTail

app = new_app()

OVERLAP: Final = PAGE // 5
"""Ids that are read again: an entry whose transaction ends later has a smaller id than one that was read before it."""


@command(app)
def audit(
    context: CommandContext,
    actor: Annotated[str | None, Option(metavar="NAME", help="Of this user, token or program.")] = None,
    operation: Annotated[str | None, Option(metavar="NAME", help="Of this operation, e.g. tasks.retry.")] = None,
    target: Annotated[str | None, Option(metavar="TARGET", help="On this task, queue, node, …")] = None,
    since: Annotated[str | None, Option(metavar="DURATION", help="Only of this last time, e.g. 1d.")] = None,
    after: AfterOption = None,
    limit: LimitOption = 50,
    follow: Annotated[bool, Option("--follow", "-f", help="The newest last, then new ones as they come.")] = False,
) -> None:
    """Show what was done by which user, token or program, the newest first.

    peerd audit --target 17

    peerd audit --actor ann --since 1d --json

    peerd audit --follow

    With --follow and --json: an object for each entry.
    """
    wanted = {"actor": actor, "operation_name": operation, "target": target}
    if follow:
        if after is not None:
            raise CommandError("--after is for pages, and --follow begins with the newest entries", "leave one out")
        for entry in AuditFollower(context.client, **wanted).read(limit, since):  # until Ctrl-C
            _print_line(context, entry)
        return
    page = context.client.audit.page(**wanted, since=since, after=after, limit=limit)
    context.print_table(page, FIELDS, page.items, "there is no such entry")
    if page.next is not None:
        context.print_hint(f"more: --after {page.next}")


def _print_line(context: CommandContext, entry: AuditEntry) -> None:
    if context.as_json:
        context.print_json_line(entry)
        return
    parts = [part for _, make_cell in FIELDS if (part := make_cell(entry))]
    line = Text("  ").join(part if isinstance(part, Text) else Text(sanitize(part)) for part in parts)
    context.out.print(line, soft_wrap=True)


def _describe_actor(entry: AuditEntry) -> str:
    return f"{entry.actor} ({entry.actor_kind}{f', {entry.address}' if entry.address else ''})"


def _describe_change(entry: AuditEntry) -> Text | str:
    is_refused = entry.outcome == REFUSED
    return Text(sanitize(f"refused: {entry.problem or ''}"), "red") if is_refused else entry.change


FIELDS: Final[Fields[AuditEntry]] = (
    (right("id"), lambda entry: str(entry.id)),
    ("at (UTC)", lambda entry: f"{entry.at:%Y-%m-%d %H:%M:%S}"),
    (Column("by", max_width=32), _describe_actor),
    ("way", lambda entry: entry.way),
    ("operation", lambda entry: entry.operation),
    (Column("on", max_width=32), lambda entry: "" if entry.target is None else f"{entry.target_kind} {entry.target}"),
    (wide("change"), _describe_change),
)


class AuditFollower:
    """Reads the entries of a filter in the order in which they come, each once.

    Args:
        client: of the command.
        wanted: the filter, as for ``client.audit.page``.
    """

    def __init__(self, client: Client, **wanted: Any) -> None:
        self._audit = client.audit
        self._wanted = wanted
        self._known: set[int] = set()
        """The ids among the last ones that were read."""

    def read(self, last: int, since: str | None) -> Iterator[AuditEntry]:
        """The last entries, at most so many and of such an age, and then new ones, without an end."""
        start = self._audit.newer()
        earlier = self._read_behind(start.next).items
        self._known = {entry.id for entry in earlier if entry.id <= int(start.next)}
        for entry in reversed(self._audit.page(**self._wanted, since=since, limit=last).items):
            self._known.add(entry.id)
            yield entry
        for tail in read_pages(lambda after: self._read_behind(after or start.next), lambda _: False):
            yield from [entry for entry in tail.items if entry.id not in self._known]
            oldest = int(tail.next) - OVERLAP
            self._known |= {entry.id for entry in tail.items}
            self._known = {entry_id for entry_id in self._known if entry_id > oldest}

    def _read_behind(self, position: str) -> AuditTail:
        return self._audit.newer(after=str(max(int(position) - OVERLAP, 0)), **self._wanted, limit=PAGE)
