"""A bar for the file that is transferred now, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from peerd.cli.context import CommandContext
from peerd.cli.output.formatting import sanitize

Report = Callable[[int, int | None], None]
LONGEST_NAME = 40


class TransferBars:
    """Bars of transfers.

    Args:
        progress: of Rich; None: nothing is shown.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    @contextmanager
    def of(self, name: str) -> Iterator[Report | None]:
        """A bar for one file; it goes away with the end of ``with``."""
        if self._progress is None:
            yield None
            return
        progress, shown = self._progress, sanitize(name)
        short = shown if len(shown) <= LONGEST_NAME else f"…{shown[1 - LONGEST_NAME :]}"
        bar = progress.add_task(short, total=None)
        try:
            yield lambda done, size: progress.update(bar, completed=done, total=size)
        finally:
            progress.remove_task(bar)


@contextmanager
def transfer_bars(context: CommandContext) -> Iterator[TransferBars]:
    """Bars on stderr, if it is a terminal and the output is for people."""
    if context.as_json or not context.err.is_terminal:
        yield TransferBars(None)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=context.err, transient=True) as progress:
        yield TransferBars(progress)
