"""``peerd audit``."""

from __future__ import annotations

from typing import Annotated

from rich.text import Text
from typer import Option

from peerd.cli.access.audit_follower import AuditFollower
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError
from peerd.cli.output import AlignedTable, Column, right, sanitize, wide
from peerd.store.audit import REFUSED, AuditEntry

app = new_app()

COLUMNS = (
    right("id"),
    "at (UTC)",
    Column("by", max_width=32),
    "way",
    "operation",
    Column("on", max_width=32),
    wide("change"),
)


@command(app)
def audit(
    context: CommandContext,
    actor: Annotated[str | None, Option(metavar="NAME", help="Of this user, token or program.")] = None,
    operation: Annotated[str | None, Option(metavar="NAME", help="Of this operation, e.g. tasks.retry.")] = None,
    target: Annotated[str | None, Option(metavar="TARGET", help="On this task, queue, node, …")] = None,
    since: Annotated[str | None, Option(metavar="DURATION", help="Only of this last time, e.g. 1d.")] = None,
    after: Annotated[str | None, Option(metavar="CURSOR", help="The page behind this one's cursor.")] = None,
    limit: Annotated[int, Option("--limit", "-l", help="At most this many.")] = 50,
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
    rows = (
        AlignedTable(COLUMNS, [_row(entry) for entry in page.items]) if page.items else Text("there is no such entry")
    )
    context.print_result(page, rows)
    if page.next is not None and not context.as_json:
        context.out.print(Text(f"  more: --after {page.next}", "bright_black"), soft_wrap=True)


def _print_line(context: CommandContext, entry: AuditEntry) -> None:
    if context.as_json:
        context.print_json_line(entry)
        return
    parts = [part for part in _row(entry) if part]
    line = Text("  ").join(part if isinstance(part, Text) else Text(sanitize(part)) for part in parts)
    context.out.print(line, soft_wrap=True)


def _row(entry: AuditEntry) -> list[Text | str]:
    target = "" if entry.target is None else f"{entry.target_kind} {entry.target}"
    by = f"{entry.actor} ({entry.actor_kind}{f', {entry.address}' if entry.address else ''})"
    moment = f"{entry.at:%Y-%m-%d %H:%M:%S}"
    is_refused = entry.outcome == REFUSED
    change = Text(sanitize(f"refused: {entry.problem or ''}"), "red") if is_refused else entry.change
    return [str(entry.id), moment, by, entry.way, entry.operation, target, change]
