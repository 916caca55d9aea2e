"""How a command follows what grows, waits for what ends, and watches what changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from rich.console import RenderableType

from peerd.cli.arguments import parse_duration_option
from peerd.cli.command import CommandContext
from peerd.cli.output import LiveDisplay
from peerd.store.audit import AuditTail
from peerd.store.tasks.log_lines import LogPage

READ_EVERY: Final = 1.0
"""Seconds between two readings of what is followed."""
PAGE: Final = 500
POLL_INTERVAL: Final = 0.2
"""Seconds between two readings of what is waited for."""
SHORTEST_PAUSE: Final = 0.05
"""Seconds between two readings of what is watched, at the least."""


Reading = TypeVar("Reading")
Page = TypeVar("Page", LogPage, AuditTail)
"""A page of what grows: ``next`` is the cursor behind it, ``has_more`` says whether there is another one now."""


def read_pages(read: Callable[[str | None], Page], is_last: Callable[[Page], bool]) -> Iterator[Page]:
    """Page after page.

    Args:
        read: reads the page behind a cursor; None: the first one.
        is_last: whether a page without another one now is the last one.
    """
    after = None
    while True:
        page = read(after)
        yield page
        after = page.next
        if page.has_more:
            continue
        if is_last(page):
            return
        time.sleep(READ_EVERY)


def poll(read: Callable[[], Reading], timeout: float | None = None) -> Iterator[Reading]:
    """Readings of what is waited for, until the time is over; without a time, for ever."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    yield read()
    while time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)
        yield read()


def parse_pause(every: str) -> float:
    """The seconds of the option ``--every``."""
    return max(parse_duration_option("--every", every), SHORTEST_PAUSE)


def watch(
    context: CommandContext,
    every: str,
    draw: Callable[[], tuple[dict[str, Any], RenderableType]],
    is_last: Callable[[dict[str, Any]], bool] = lambda _: False,
) -> None:
    """Show what changes: each picture replaces the one before; with --json, an object for each.

    Args:
        context: of the command.
        every: the interval, as it is given by the option.
        draw: reads what is shown, and makes its JSON and its picture.
        is_last: whether this was the last one, by its JSON; otherwise Ctrl-C ends it.
    """
    pause = parse_pause(every)
    with LiveDisplay(context.out, silent=context.as_json, transient=False) as display:
        while True:
            answer, picture = draw()
            if context.as_json:
                context.print_json_line(answer)
            display.update(picture)
            if is_last(answer):
                return
            time.sleep(pause)
