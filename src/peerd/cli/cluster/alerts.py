"""``peerd alerts``."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Final

from rich.text import Text
from typer import Option

from peerd.agent.alert_delivery import make_hook
from peerd.cli.arguments import AfterOption, LimitOption
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.output import UNKNOWN, Column, Fields, first_line, right, sanitize, wide
from peerd.config import Settings
from peerd.domain.alert import Alert, AlertKind, AlertState
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_output import LogEventListener, configure_logging
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.alerts import AlertRecord

app = new_app("List alerts, and test the hooks that deliver them.")

STATE_STYLES = {AlertState.ON: "red", AlertState.RECENT: "yellow"}
FIELDS: Final[Fields[AlertRecord]] = (
    (right("id"), lambda alert: str(alert.id)),
    ("state", lambda alert: Text(alert.state, STATE_STYLES.get(alert.state, ""))),
    ("kind", lambda alert: alert.kind),
    (Column("about", max_width=32), lambda alert: alert.subject),
    (right("times", drop_priority=1), lambda alert: f"{alert.times:,}"),
    ("raised (UTC)", lambda alert: f"{alert.raised_at:%Y-%m-%d %H:%M:%S}"),
    (Column("seen (UTC)", drop_priority=2), lambda alert: f"{alert.last_seen_at:%Y-%m-%d %H:%M:%S}"),
    (Column("node", max_width=32, drop_priority=3), lambda alert: alert.about_node or UNKNOWN),
    (Column("noticed by", max_width=32, drop_priority=4), lambda alert: alert.node),
    (wide("text"), lambda alert: first_line(alert.text)),
)


@command(app, "list")
def list_alerts(
    context: CommandContext,
    on: Annotated[bool, Option("--on", help="Only conditions that are on, such as a backlog.")] = False,
    kind: Annotated[list[str] | None, Option("--kind", metavar="KIND", help="Only of this kind; repeatable.")] = None,
    since: Annotated[str | None, Option(metavar="DURATION", help="Only those seen in this last time, e.g. 1d.")] = None,
    after: AfterOption = None,
    limit: LimitOption = 50,
) -> None:
    """List the alerts that are on, or were raised lately, the newest first.

    A condition is on, ended, or unseen: not reported again in time, since it is over or what reported it has died. An
    incident is recent for an hour, and past then.

    peerd alerts list --on

    peerd alerts list --since 1d --json
    """
    page = context.client.alerts.list(on=on or None, kinds=kind or None, since=since, after=after, limit=limit)
    context.print_table(page, FIELDS, page.items, "there is no such alert")
    if page.next is not None:
        context.print_hint(f"more: --after {page.next}")


@command(app, of_this_machine=True)
def test(context: CommandContext) -> None:
    """Send a test alert with each enabled hook, and print the results. No node need run.

    Exit status 1 if a hook fails.
    """
    errors = asyncio.run(test_hooks(context.settings))
    lines = [_describe_result(name, error) for name, error in errors.items()]
    none = Text("no hook is enabled; add [alerts.NAME] to peerd.toml, see docs/alerts.md", "yellow")
    failed = any(error is not None for error in errors.values())
    context.print_result({"ok": not failed, "hooks": errors}, *(lines or [none]), failed=failed)


def _describe_result(name: str, error: str | None) -> Text:
    if error is None:
        return Text.assemble(("   ok  ", "green"), (name, "bold"), ": sent")
    return Text.assemble(("failed ", "bold red"), (name, "bold"), ": ", sanitize(error))


# ---------------------------------------------------------------- test alerts


async def test_hooks(settings: Settings) -> dict[str, str | None]:
    """The error of each enabled hook, or None."""
    log = configure_logging(settings.logging.level, settings.logging.format, node=settings.node.name)
    events = EventBus(LogEventListener(log))
    text = "this is a test: alerts of this node arrive here"
    alert = Alert(alert=AlertKind.TEST.value, text=text, node=settings.node.name, at=datetime.now(UTC))
    hooks = {name: hook for name, hook in settings.alerts.items() if hook.enabled}
    results = await asyncio.gather(
        *(make_hook(hook, settings.project_directory, events)(alert) for hook in hooks.values()),
        return_exceptions=True,
    )
    errors = [None if result is None else describe_exception(result) for result in results]
    return dict(zip(hooks, errors, strict=True))
