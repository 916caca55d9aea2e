"""The tables of `peerd top` and one task of it: what they show, sort, filter and lay out, whatever a text contains."""

from __future__ import annotations

import re
from itertools import count
from threading import Event
from types import SimpleNamespace

import pytest
from textual.widgets import RichLog

from peerd import Client
from peerd.cli.top import reading
from peerd.cli.top.screens import TaskScreen
from peerd.domain.alert import AlertReport
from peerd.domain.outcome import Done, Failed
from peerd.store.alerts import ReportAge, record_alert
from peerd.store.tasks import pages
from tests.cli.top.conftest import LARGE, SMALL, WITHIN, Top, opened_top, write_line
from tests.unit.operate.claiming_process import ClaimingProcess


async def test_each_table_shows_its_rows_the_running_tasks_first(filled: Client) -> None:
    filled.queues.pause("mail")
    async with opened_top(filled) as top:
        words = top.line("half of").split()
        assert words[:5] == ["5", "video/transcode", words[2], "s", "1/3"], "their status stands above them"
        assert {"video-1", "50%"} <= set(words)
        await top.until_shown("2 working", "1 scheduled", "nodes 1 of 1")
        top.assert_fits()
        await top.press("2")
        assert top.line(" mail ").split() == ["mail", "paused", "2", "0", "0", *top.line(" mail ").split()[5:]]
        assert "3 tasks" not in top.text
        await top.press("3")
        assert top.line("video-1").split()[:4] == ["video-1", "active", "2", "4"]
        await top.press("4")
        assert "task 2 is dead" in top.line("dead-tasks")
        await top.press("1")
        assert "video/transcode" in top.text
        for view in ("2 queues", "1 node", "1 alert", "2 tasks"):
            await top.press("tab")
            assert view in top.line("1 Tasks")
        await top.press("shift+tab")
        assert "1 alert" in top.line("1 Tasks")


async def test_rows_are_sorted_by_each_column_in_both_directions(filled: Client) -> None:
    async with opened_top(filled, LARGE) as top:
        await top.press("T")
        await top.until_shown("8 tasks")
        await top.press("s")
        assert "Id ▼" in top.text
        await top.press("S")
        assert "Id ▲" in top.text
        assert [line.split()[0] for line in top.lines if re.match(r" +\d+  \w+/", line)] == list("12345678")
        await top.press("s")
        names = top.column("Task")
        assert names == sorted(names)
        for title in ("Status", "Since", "Attempts", "Node", "Progress", "Note", "Id"):
            await top.press("s")
            assert f"{title} ▼" in top.text or f"{title} ▲" in top.text
        await top.press("2")
        assert "▼" not in top.text, "each table has an order of its own"


async def test_a_filter_is_a_part_of_any_cell_and_stays_until_escape(filled: Client) -> None:
    async with opened_top(filled) as top:
        await top.press("T")
        await top.until_shown("8 tasks")
        await top.press("slash", *"NO DI")
        assert "1 task  /NO DI" in top.line("1 Tasks")
        assert "OSError: " in top.text
        await top.press("tab")
        assert "1 task" in top.line("1 Tasks"), "Tab leads from the filter to the rows, and not to another table"
        await top.press("2")
        assert "no queue has tasks  /NO DI" in top.line("1 Tasks")
        await top.press("escape")
        assert "2 queues" in top.line("1 Tasks")
        await top.press("slash", *"q3")
        assert "no queue has tasks  /q3" in top.line("1 Tasks"), "letters are text, and no keys"


@pytest.mark.slow
async def test_the_cursor_stays_on_its_row_when_others_come_and_go(filled: Client, holder: ClaimingProcess) -> None:
    async with opened_top(filled) as top:
        await top.press("down")
        filled.enqueue("video", name="transcode")
        holder.claim()
        await top.until_shown("3 tasks")
        holder.end(filled.tasks.get(5), Done())
        await top.until_shown("2 tasks")
        await top.press("c")
        assert "Cancel task 4 (video/transcode)?" in top.text


@pytest.mark.slow
async def test_every_table_fits_every_terminal_and_a_narrow_one_shows_fewer_columns(filled: Client) -> None:
    async with opened_top(filled, LARGE) as top:
        for size in (SMALL, (40, 12), (12, 5), (300, 100), LARGE):
            for key in "1234":
                await top.press(key)
                await top.resize(*size)
                await top.until(lambda size=size: top.application.size == size)  # type: ignore[misc]
                top.assert_fits()
            await top.press("1", "question_mark")
            assert size <= SMALL or "sort by the next column" in top.text
            top.assert_fits()
            await top.press("escape")
        await top.press("2")
        await top.until_shown("Wait p95", "Run p95", "Buried", "Scheduled")
        await top.resize(*SMALL)
        await top.until(lambda: "Run p95" not in top.text)
        assert "Pending" in top.text
        await top.resize(*LARGE)
        await top.until_shown("Run p95")


async def test_the_rows_are_there_before_the_figures_and_all_that_a_status_has(
    filled: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = Event()
    monkeypatch.setattr(reading, "_read_overview", lambda client: figures.wait(WITHIN) and client.statistics.overview())
    monkeypatch.setattr(pages, "FIRST_EXAMINED", 1)
    monkeypatch.setattr(
        pages, "time", SimpleNamespace(monotonic=count().__next__)
    )  # each page of a search has one task
    async with opened_top(filled) as top:
        await top.until_shown("reading the figures …", "half of", "2 working", "2 tasks")
        figures.set()
        await top.until_shown("done/min")
        await top.press("t")
        await top.until_shown(" 2 tasks", "mail/notify", "mail/greet")
        assert "1+" not in top.text


@pytest.mark.slow
async def test_more_tasks_than_are_read_are_marked(client: Client, holder: ClaimingProcess) -> None:
    client.enqueue_many(["video"] * 203)
    async with opened_top(client) as top:
        await top.press("t")
        await top.until_shown("200+ tasks")
        await top.press("end")
        await top.until(lambda: top.application.query_one("#table").scroll_offset.y > 0)
        for _ in range(3):
            holder.run(Done(), queue="video")
        await top.until_shown("200 tasks")
        holder.run(Done(), queue="video")
        await top.until_shown("199 tasks")
        assert top.application.query_one("#table").scroll_offset.y > 0, "the place in the table stays"


@pytest.mark.slow
async def test_an_empty_database_is_no_error(client: Client) -> None:
    async with opened_top(client) as top:
        for view, text in zip("1234", ("no task", "no queue", "no node", "no alert"), strict=True):
            await top.press(view, "c", "p", "d", "enter", "s", "S")
            assert text in top.line("1 Tasks")


def log_of(top: Top) -> RichLog:
    return top.application.screen.query_one("#log", RichLog)


async def test_a_task_is_shown_in_full_and_as_it_changes(filled: Client, holder: ClaimingProcess) -> None:
    async with opened_top(filled, LARGE) as top:
        await top.press("enter")
        await top.until_shown("task 5 video/transcode is working", "50% half of five.mov", '"source": "4.mov"')
        holder.report(filled.tasks.get(5), 0.75, "three quarters")
        await top.until_shown("75% three quarters")
        holder.end(filled.tasks.get(5), Done(result='{"output":"five.mp4"}'))
        await top.until_shown("is done", '"output": "five.mp4"')
        await top.press("escape")
        await top.until_shown("t working", "1 task")


@pytest.mark.slow
async def test_the_log_follows_new_lines_each_of_them_once_and_who_reads_earlier_ones_is_not_moved(
    filled: Client,
) -> None:
    write_line(filled, 5, 0, "the first line")
    async with opened_top(filled) as top:
        await top.press("enter")
        await top.until_shown("attempt 1 (lease 1)", "info     app: the first line")
        for number in range(1, 60):
            write_line(filled, 5, number, f"line number {number:02} of many")
        await top.until_shown("line number 59 of many")
        written = " ".join(str(line.text) for line in log_of(top).lines)
        assert (written.count("of many"), written.count("the first line")) == (59, 1)
        await top.press("home")
        await top.until_shown("the first line")
        write_line(filled, 5, 60, "the last one")
        await top.until(lambda: any("the last one" in str(line.text) for line in log_of(top).lines))
        assert "the first line" in top.text
        await top.press("end")
        await top.until_shown("the last one")


@pytest.mark.slow
async def test_a_task_that_vanishes_leaves_what_was_read_and_says_so(filled: Client) -> None:
    write_line(filled, 5, 0, "the first line")
    async with opened_top(filled) as top:
        await top.press("enter")
        await top.until_shown("the first line")
        filled.tasks.cancel(5)
        filled.tasks.delete(5)
        await top.until_shown("there is no task 5", "the first line", "half of five.mov")
        await top.press("r", "y")
        await top.until_shown("not done: there is no task 5")


@pytest.mark.slow
async def test_the_log_is_wrapped_anew_for_another_width_and_actions_are_on_the_open_task(filled: Client) -> None:
    write_line(filled, 5, 0, " ".join(f"word{number:02}" for number in range(30)))
    async with opened_top(filled) as top:
        await top.press("enter")
        await top.until_shown("word29", "attempts  1 of 3")
        await top.press("tab", "end")
        await top.until_shown('"source": "4.mov"')
        await top.press("tab")
        assert top.application.focused is log_of(top), "Tab leads to the facts and back"
        narrow = len(log_of(top).lines)
        await top.resize(*LARGE)
        await top.until(lambda: len(log_of(top).lines) < narrow)
        top.assert_fits()
        await top.press("c", "y")
        await top.until_shown("task 5 was canceled", "is canceled")
        assert isinstance(top.application.screen, TaskScreen)


HOSTILE = (
    "\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\x9b2J", "[bold red]markup[/bold red]", "[@click=app.quit]link[/]",
    "[/unopened]", "\u202eright to left", "\u2066isolated", "line one\nline two\r\nline three", "tab\tulator",
    "\x01\x07\x08", "漢字かな交じり文" * 20, "🎬" * 40, "e\u0301" * 40, "a" * 5_000,
)  # fmt: skip
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


@pytest.mark.slow
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


@pytest.mark.slow
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
