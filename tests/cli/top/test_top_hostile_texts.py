"""Texts of users in `peerd top`: they are shown, and do nothing to the screen."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len
from textual.widgets import RichLog

from peerd import Client
from peerd.domain.alert_record import AlertReport
from peerd.domain.outcome import Failed
from peerd.store.alerts.recording import ReportAge, record_alert
from tests.cli.conftest import Peerd
from tests.cli.top.conftest import LARGE, opened_top, write_line
from tests.cli.top.terminal import Terminal
from tests.unit.operate.claiming_process import ClaimingProcess

HOSTILE = (
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b2J",
    "[bold red]markup[/bold red]",
    "[@click=app.quit]link[/]",
    "[/unopened]",
    "\u202eright to left",
    "\u2066isolated",
    "line one\nline two\r\nline three",
    "tab\tulator",
    "\x01\x07\x08",
    "漢字かな交じり文" * 20,
    "🎬" * 40,
    "e\u0301" * 40,
    "a" * 5_000,
)
pytestmark = pytest.mark.slow
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def fill_with(client: Client, holder: ClaimingProcess, text: str) -> None:
    """A task, a queue, an alert and a log with the text wherever a user may put one."""
    name = text[:40]
    client.enqueue("video", name=name, body={"source": text})
    client.enqueue("video", name="fails")
    working = holder.claim()
    holder.report(working, 0.5, text[:200])
    holder.run(Failed(error=text, traceback=text), max_attempts=1)
    write_line(client, working.id, 0, text)
    data = {"text": text}
    report = AlertReport(kind="dead-tasks", subject=name, node="video-1", text=text, data=data, slot=None)
    client.database.run(record_alert, report, ReportAge())


async def test_hostile_texts_are_shown_and_change_nothing_else(client: Client, holder: ClaimingProcess) -> None:
    for text in HOSTILE:
        fill_with(client, holder, text)
    async with opened_top(client) as top:

        def assert_harmless() -> None:
            top.assert_fits()
            assert UNSAFE.search("".join(top.lines)) is None

        assert_harmless()
        for key in ("4", "2", "3", "T"):
            await top.press(key)
            assert_harmless()
        await top.press("1", "c")
        assert_harmless()
        await top.press("n")
        for _ in HOSTILE:
            await top.press("enter")
            await top.until(lambda: top.application.screen.query_one("#log", RichLog).lines)
            assert_harmless()
            await top.press("tab", "end")
            assert_harmless()
            await top.press("escape", "down")
        await top.press(*"TTTTT")
        await top.until_shown(" t dead ")
        for _ in HOSTILE:
            assert_harmless()
            await top.press("enter")
            await top.until_shown("is dead")
            assert_harmless()
            await top.press("escape", "down")


async def test_markup_is_shown_as_it_was_written_also_in_a_filter(client: Client, holder: ClaimingProcess) -> None:
    fill_with(client, holder, "[bold]markup[/bold]")
    async with opened_top(client, LARGE) as top:
        assert "video/[bold]markup[/bold]" in top.text
        await top.press("c")
        assert "Cancel task 1 (video/[bold]markup[/bold])?" in top.text
        await top.press("n", "enter")
        await top.until_shown("app: [bold]markup[/bold]")
        await top.press("escape", "slash", *"[/bold]", "enter")
        assert "/[/bold]" in top.line("1 Tasks")


def test_a_terminal_shows_each_line_where_it_belongs(peerd: Peerd, client: Client, holder: ClaimingProcess) -> None:
    """The emulator executes every sequence that reaches it: one from a text would move what follows."""
    for text in HOSTILE[:11]:
        fill_with(client, holder, text)
    with Terminal(["top", "--database", client.database.url.render_as_string()], *LARGE) as terminal:
        terminal.wait_for("11 tasks", "q Quit")
        rows = [line for line in terminal.display if re.match(r" +\d+  video/", line)]
        assert len(rows) == 11
        assert len({row.index("working") for row in rows}) == 1
        assert all(cell_len(line) <= LARGE[0] for line in terminal.display)
        terminal.press("4")
        terminal.wait_for("11 alerts")
        assert sum("dead-tasks" in line for line in terminal.display) == 11
        terminal.press("q")
        assert terminal.wait_until_ended() == 0
