"""Try the hooks that tell people what needs them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from peerd.agent.alerts.hooks import make_hook
from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.output.formatting import sanitize
from peerd.config import Settings
from peerd.domain.alert import Alert, AlertKind
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_messages import LogEventListener, configure_logging
from peerd.runtime.process.uncaught_exceptions import describe_exception

app = new_app(__doc__, no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@command(app)
def test(context: CommandContext) -> None:
    """Send a test alert by each hook, from here, and say how it went. No node need run.

    Exit status 1 when one of them fails.
    """
    tried = asyncio.run(_test_hooks(context.settings))
    context.answer(
        {"ok": all(error is None for error in tried.values()), "hooks": tried}, lambda: _render_results(tried)
    )
    if any(tried.values()):
        raise typer.Exit(1)


async def _test_hooks(settings: Settings) -> dict[str, str | None]:
    """How each enabled hook did: None, or what is wrong with it."""
    log = configure_logging(settings.logging.level, settings.logging.format, node=settings.node.name)
    events = EventBus(LogEventListener(log))
    alert = Alert(
        alert=AlertKind.TEST.value,
        text="this is a test: alerts of this node arrive here",
        node=settings.node.name,
        at=datetime.now(UTC),
    )
    hooks = {name: hook for name, hook in settings.alerts.items() if hook.enabled}
    results = await asyncio.gather(
        *(make_hook(hook, settings.project_directory, events).send(alert) for hook in hooks.values()),
        return_exceptions=True,
    )
    return {
        name: None if result is None else describe_exception(result)
        for name, result in zip(hooks, results, strict=True)
    }


def _render_results(tried: dict[str, Any]) -> RenderableType:
    if not tried:
        return Text("no hook is enabled; add one: [alerts.NAME] in peerd.toml, see docs/alerts.md", "yellow")
    return Group(*[_render_result(name, error) for name, error in tried.items()])


def _render_result(name: str, error: str | None) -> Text:
    if error is None:
        return Text.assemble(("   ok  ", "green"), (name, "bold"), ": sent")
    return Text.assemble(("failed ", "bold red"), (name, "bold"), ": ", sanitize(error))
