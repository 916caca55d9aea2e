"""``peerd metrics``."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any, Final

import typer
from typer import Option

from peerd.cli.arguments import RunDirectoryOption
from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError
from peerd.runtime.metrics.node_metrics import MetricsNotAvailable, read_node_metrics
from peerd.runtime.metrics.registry import Sample
from peerd.runtime.process.process_context import METRICS_ACTION
from peerd.supervision import control_client

app = new_app()
AGENT_TIMEOUT: Final = 3.0
"""Seconds that the agent has for each page."""


@command(app)
def metrics(
    context: CommandContext,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="PATH", help="Write them to this file, in one step.")
    ] = None,
    run_directory: RunDirectoryOption = None,
) -> None:
    """Print this node's metrics in the text format of Prometheus.

    No web process is needed. With --output, node_exporter's textfile collector can read the file at any moment; its
    name must end with .prom there.
    """
    samples = _read(run_directory or context.settings.node.run_directory)
    if context.as_json:
        context.print_json_line(samples)
        return
    text = _as_text(samples)
    if output is None:
        typer.echo(text, nl=False)
    else:
        _write(output, text)


def _read(folder: Path) -> list[Sample]:
    async def request(data: object) -> Any:
        return control_client.call_agent(folder, METRICS_ACTION, data, timeout=AGENT_TIMEOUT)

    try:
        return asyncio.run(read_node_metrics(request))
    except (control_client.CommandRefused, MetricsNotAvailable) as error:
        raise CommandError(str(error)) from error


def _as_text(samples: list[Sample]) -> str:
    try:
        from peerd.runtime.metrics.exposition import expose_as_text  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise CommandError(
            f"the text format requires prometheus-client ({error})", "pip install 'peerd[dashboard]'"
        ) from error
    return expose_as_text(samples)


def _write(output: Path, text: str) -> None:
    """Replace the file, readable for all: a collector must not read half of it."""
    try:
        with NamedTemporaryFile("w", dir=output.parent, prefix=f".{output.name}.", delete=False) as file:
            written = Path(file.name)
            try:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
                file.flush()
                written.replace(output)
            except BaseException:
                with suppress(OSError):
                    written.unlink()
                raise
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {(error.strerror or str(error)).lower()}") from error
