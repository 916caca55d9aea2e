"""One task of `peerd top`, and its log as it is written."""

from __future__ import annotations

import pytest
from textual.widgets import RichLog

from peerd import Client
from peerd.cli.top.task_screen import LOG_LINES, TaskScreen
from peerd.domain.outcome import Done
from tests.cli.top.conftest import LARGE, Top, opened_top, write_line
from tests.unit.operate.claiming_process import ClaimingProcess


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
        written = [str(line.text) for line in log_of(top).lines]
        assert sum("of many" in line for line in written) == 59
        assert sum("the first line" in line for line in written) == 1
        await top.press("home")
        await top.until_shown("the first line")
        write_line(filled, 5, 60, "the last one")
        await top.until(lambda: any("the last one" in str(line.text) for line in log_of(top).lines))
        assert "the first line" in top.text
        await top.press("end")
        await top.until_shown("the last one")
        write_line(filled, 5, 61, "one more")
        await top.until_shown("one more")


@pytest.mark.slow
async def test_a_long_log_begins_with_its_last_lines(filled: Client) -> None:
    for number in range(LOG_LINES + 7):
        write_line(filled, 5, number, f"line number {number:03}")
    async with opened_top(filled) as top:
        await top.press("enter")
        await top.until_shown(f"line number {LOG_LINES + 6}")
        await top.press("home")
        await top.until(lambda: "line number 00" in top.text)
        first = [str(line.text) for line in log_of(top).lines][:4]
        assert "line number 006" not in "".join(first)


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
        await top.press("q")
        await top.until_shown("t working", "1 task")


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
        assert "word00" in top.text
        assert "word29" in top.text
        top.assert_fits()
        await top.press("c")
        assert "Cancel task 5 (video/transcode)?" in top.text
        await top.press("y")
        await top.until_shown("task 5 was canceled", "is canceled")
        assert isinstance(top.application.screen, TaskScreen)
