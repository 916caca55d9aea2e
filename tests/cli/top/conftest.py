"""Fixtures of `peerd top`: a database with some of everything, and the application on it, with Textual's pilot."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from peerd import Client
from peerd.cli.top.application import TopApplication
from peerd.domain.alert import AlertReport
from peerd.domain.outcome import Done, Failed
from peerd.store.alerts import ReportAge, record_alert
from peerd.store.tasks.log_lines import LoggedLine, write_lines
from peerd.testing import eventually_async
from tests.unit.operate.claiming_process import ClaimingProcess

SMALL, LARGE = (80, 24), (200, 60)
PAUSE = 0.1
"""Seconds between two readings."""
WITHIN = 60.0


class Top:
    """The application on a screen without a terminal; the pilot presses its keys."""

    def __init__(self, application: TopApplication, pilot: Pilot[None]) -> None:
        self.application = application
        self._pilot = pilot

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        strips = self.application.screen._compositor.render_strips(self.application.size)
        return [strip.text.rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def line(self, part: str) -> str:
        """The line of the screen with a text."""
        found = [line for line in self.lines if part in line]
        assert len(found) == 1, (part, self.text)
        return found[0]

    def column(self, title: str) -> list[str]:
        """The cells below a title that is aligned to the left, of all rows."""
        number = next(number for number, line in enumerate(self.lines) if title in line.split())
        begin = self.lines[number].index(title)
        rows = self.lines[number + 1 :]
        return [row[begin:].split("  ")[0] for row in rows[: rows.index("")]]

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def until(self, condition: Callable[[], object]) -> None:
        await eventually_async(condition, timeout=WITHIN, message=lambda: self.text)

    async def until_shown(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts))

    async def until_gone(self, text: str) -> None:
        await self.until(lambda: text not in self.text)

    async def resize(self, columns: int, lines: int) -> None:
        await self._pilot.resize_terminal(columns, lines)

    def assert_fits(self) -> None:
        """No line is wider than the screen, and none is missing."""
        width, height = self.application.size
        assert len(self.lines) == height
        assert [line for line in self.lines if cell_len(line) > width] == []


@asynccontextmanager
async def opened_top(client: Client, size: tuple[int, int] = SMALL) -> AsyncIterator[Top]:
    """The application, with its first reading on the screen."""
    application = TopApplication(client, PAUSE, "the source")
    async with application.run_test(size=size) as pilot:
        top = Top(application, pilot)
        await top.until_shown("the source", " t working", " working ")
        yield top
    await eventually_async(  # a reading uses the client, which the test closes
        lambda: all(thread.name != "peerd-top" for thread in threading.enumerate()), timeout=WITHIN
    )


def fill(client: Client, holder: ClaimingProcess) -> None:
    """Tasks 1 to 8: done, dead, failure, two that run, two pending, one scheduled; a node; an alert."""
    for number in range(5):
        client.enqueue("video", name="transcode", body={"source": f"{number}.mov"})
    holder.run(Done(result='{"output":7}'))
    holder.run(Failed(error="ValueError: is no video"), max_attempts=1)
    holder.run(Failed(error="OSError: no disk", retry_in=3600.0))
    holder.report(holder.claim(), 0.25, "a quarter of four.mov")
    holder.report(holder.claim(), 0.5, "half of five.mov")
    client.enqueue("mail", name="notify")
    client.enqueue("mail", name="greet")
    client.enqueue("mail", name="remind", start_in="1h")
    report = AlertReport(kind="dead-tasks", subject="video", node="video-1", text="task 2 is dead", data={}, slot=None)
    client.database.run(record_alert, report, ReportAge())


def write_line(client: Client, task_id: int, number: int, message: str) -> None:
    """What an attempt of the task has logged."""
    line = LoggedLine(task_id, 1, number, 1, datetime.now(UTC), "info", "app", message, None)
    client.database.run(write_lines, [line])


@pytest.fixture
def filled(client: Client, holder: ClaimingProcess) -> Client:
    """A client of a database with some of everything."""
    fill(client, holder)
    return client
