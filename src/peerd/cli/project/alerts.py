"""``peerd alerts test``."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import typer
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

app = new_app("Test the hooks that deliver alerts.")


@app.callback()
def _group() -> None:
    pass


@command(app, of_this_machine=True)
def test(context: CommandContext) -> None:
    """Send a test alert with each enabled hook, and print the results. No node need run.

    Exit status 1 if a hook fails.
    """
    errors = asyncio.run(_test_hooks(context.settings))
    lines = [_describe_result(name, error) for name, error in errors.items()]
    none = Text("no hook is enabled; add [alerts.NAME] to peerd.toml, see docs/alerts.md", "yellow")
    failed = any(error is not None for error in errors.values())
    context.print_result({"ok": not failed, "hooks": errors}, *(lines or [none]))
    if failed:
        raise typer.Exit(1)


async def _test_hooks(settings: Settings) -> dict[str, str | None]:
    """The error of each enabled hook, or None."""
    log = configure_logging(settings.logging.level, settings.logging.format, node=settings.node.name)
    events = EventBus(LogEventListener(log))
    text = "this is a test: alerts of this node arrive here"
    alert = Alert(alert=AlertKind.TEST.value, text=text, node=settings.node.name, at=datetime.now(UTC))
    hooks = {name: hook for name, hook in settings.alerts.items() if hook.enabled}
    results = await asyncio.gather(
        *(make_hook(hook, settings.project_directory, events).send(alert) for hook in hooks.values()),
        return_exceptions=True,
    )
    errors = [None if result is None else describe_exception(result) for result in results]
    return dict(zip(hooks, errors, strict=True))


def _describe_result(name: str, error: str | None) -> Text:
    if error is None:
        return Text.assemble(("   ok  ", "green"), (name, "bold"), ": sent")
    return Text.assemble(("failed ", "bold red"), (name, "bold"), ": ", sanitize(error))
