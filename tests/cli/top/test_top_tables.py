"""The tables of `peerd top`: what they show, how they are sorted, filtered and laid out."""

from __future__ import annotations

import re

import pytest

from peerd import Client
from peerd.domain.outcome import Done
from tests.cli.top.conftest import LARGE, SMALL, opened_top
from tests.unit.operate.claiming_process import ClaimingProcess


async def test_each_table_shows_its_rows_the_running_tasks_first(filled: Client) -> None:
    filled.queues.pause("mail")
    async with opened_top(filled) as top:
        words = top.line("half of").split()
        assert words[:6] == ["5", "video/transcode", "working", words[3], "s", "1/3"]
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


@pytest.mark.slow
async def test_t_shows_tasks_of_every_status_one_after_another(filled: Client) -> None:
    async with opened_top(filled) as top:
        found: dict[str, int] = {}
        for status in ("pending", "scheduled", "waiting", "failure", "dead", "buried", "canceled", "done", "newest"):
            await top.press("t")
            await top.until_shown(f" t {status}")
            shown = top.line("1 Tasks").partition(f"t {status}")[2].split()
            found[status] = 0 if shown[0] == "no" else int(shown[0])
        filled_statuses = {"pending": 2, "scheduled": 1, "failure": 1, "dead": 1, "done": 1, "newest": 8}
        assert {status: count for status, count in found.items() if count} == filled_statuses
        await top.press("T")
        await top.until_shown(" t done")
        await top.press("3", "t")
        assert "1 node" in top.line("1 Tasks"), "t is of tasks alone"


async def test_rows_are_sorted_by_each_column_in_both_directions(filled: Client) -> None:
    async with opened_top(filled, LARGE) as top:
        await top.press("T")
        await top.until_shown("8 tasks")
        await top.press("s")
        assert "Id ▼" in top.text
        assert [line.split()[0] for line in top.lines if re.match(r" +\d+  \w+/", line)] == list("87654321")
        await top.press("S")
        assert "Id ▲" in top.text
        assert [line.split()[0] for line in top.lines if re.match(r" +\d+  \w+/", line)] == list("12345678")
        await top.press("s")
        assert "Task ▲" in top.text
        names = top.column("Task")
        assert names == sorted(names)
        await top.press("S")
        assert top.column("Task") == sorted(names, reverse=True)
        for title in ("Status", "Since", "Tries", "Node", "Progress", "Note", "Id"):
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
        await top.press("slash", "enter")
        assert "1 task  /NO DI" in top.line("1 Tasks")
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
        row = top.application._current_row()
        assert row is not None
        assert row.key == "4"
        filled.enqueue("video", name="transcode")
        holder.claim()
        await top.until_shown("3 tasks")
        assert top.application._current_row().key == "4"  # type: ignore[union-attr]
        holder.end(filled.tasks.get(5), Done())
        await top.until_shown("2 tasks")
        assert top.application._current_row().key == "4"  # type: ignore[union-attr]
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
            top.assert_fits()
            await top.press("escape")
        await top.press("2")
        await top.until_shown("Wait p95", "Run p95", "Buried", "Scheduled")
        await top.resize(*SMALL)
        await top.until(lambda: "Run p95" not in top.text)
        assert "Pending" in top.text
        await top.resize(*LARGE)
        await top.until_shown("Run p95")


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
async def test_the_question_mark_explains_the_keys_of_the_table_and_the_footer_names_them(filled: Client) -> None:
    async with opened_top(filled, LARGE) as top:
        footers = {}
        for view, effect in (
            ("1", "Its row is deleted."),
            ("2", "Its tasks are claimed again."),
            ("3", "It finishes what it runs"),
            ("4", ""),
        ):
            await top.press(view)
            await top.until(lambda: top.lines[-1])
            footers[view] = top.lines[-1].split()
            await top.press("question_mark")
            assert "sort by the next column" in top.text
            assert effect in top.text
            await top.press("escape")
            assert "sort by the next column" not in top.text
        common = ["s", "Sort", "/", "Filter", "?", "Keys", "q", "Quit"]
        assert footers["1"] == ["r", "Retry", "c", "Cancel", "k", "Kick", "b", "Bury", "d", "Delete", *common]
        assert set(footers["2"]) == {"p", "Pause", "u", "Resume", "k", "Kick", *common}
        assert set(footers["3"]) == {"d", "Drain", "u", "Undrain", "f", "Forget", *common}
        assert footers["4"] == common


@pytest.mark.slow
async def test_an_empty_database_is_no_error(client: Client) -> None:
    async with opened_top(client) as top:
        for view, text in zip("1234", ("no task", "no queue", "no node", "no alert"), strict=True):
            await top.press(view, "c", "p", "d", "enter", "s", "S")
            assert text in top.line("1 Tasks")
