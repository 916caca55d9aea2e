"""`peerd top` in a real terminal: its start and its ends, its size, and what keeps it from starting."""

from __future__ import annotations

import signal
import sys

import pytest

from peerd import Client
from peerd.domain.outcome import Done
from tests.cli.conftest import Peerd
from tests.cli.top.conftest import LARGE, SMALL
from tests.cli.top.terminal import Terminal
from tests.unit.operate.claiming_process import ClaimingProcess

LEAVE_SCREEN = b"\x1b[?1049l"
"""Shows again what was on the terminal before."""
SHOW_CURSOR = b"\x1b[?25h"
BYTES_A_SECOND = 4_000
"""At the most, while tasks report progress; docs/top.md has what was measured."""


def command(client: Client, *options: str) -> list[str]:
    return ["top", *options, "--database", client.database.url.render_as_string()]


def test_the_whole_way_through_the_tables_in_a_terminal(filled: Client, holder: ClaimingProcess) -> None:
    with Terminal(command(filled, "--every", "500ms"), *SMALL) as terminal:
        terminal.wait_for("half of", "q Quit", "2 tasks", " 50%")
        assert terminal.display[-1].endswith("q Quit"), "all keys of the footer are on the screen"
        holder.report(filled.tasks.get(5), 0.75, "three quarters")
        terminal.wait_for(" 75%")
        for key, text in (("2", "2 queues"), ("3", "1 node"), ("4", "1 alert"), ("\t", "2 tasks")):
            terminal.press(key)
            terminal.wait_for(text)
        terminal.press("\r")
        terminal.wait_for("task 5 video/transcode is working")
        holder.end(filled.tasks.get(5), Done())
        terminal.wait_for("task 5 video/transcode is done")
        terminal.press("\x1b")
        terminal.wait_for("1 task")
        terminal.press("cy")
        terminal.wait_for("task 4 was canceled", "no task")
        terminal.press("q")
        assert terminal.wait_until_ended() == 0


@pytest.mark.slow
@pytest.mark.parametrize("end", ["q", "\x03", signal.SIGTERM, signal.SIGHUP])
def test_every_end_restores_the_terminal(filled: Client, end: str | signal.Signals) -> None:
    with Terminal(command(filled), *SMALL) as terminal:
        terminal.wait_for("q Quit", "half of")
        if isinstance(end, str):
            terminal.press(end)
        else:
            terminal.process.send_signal(end)
        assert terminal.wait_until_ended() == 0
        terminal.wait_until(lambda: LEAVE_SCREEN in terminal.output and SHOW_CURSOR in terminal.output)
        assert terminal.is_echoing(), "the terminal shows what is typed, as before"


@pytest.mark.slow
def test_a_terminal_that_is_resized_is_laid_out_anew_and_few_bytes_are_sent_for_what_changes(
    filled: Client, holder: ClaimingProcess
) -> None:
    """Over a slow connection it matters that a change of a cell does not send the screen."""
    with Terminal(command(filled, "--every", "500ms"), *LARGE) as terminal:
        terminal.wait_for("half of five.mov", "q Quit")
        before = terminal.received
        for percent in range(51, 61):
            holder.report(filled.tasks.get(5), percent / 100, f"{percent} of a hundred")
            terminal.wait_for(f"{percent} of a hundred")
        assert terminal.received - before < 10 * BYTES_A_SECOND / 2
        terminal.press("2")
        terminal.wait_for("Run p95")
        terminal.resize(*SMALL)
        terminal.wait_until(lambda: "Run p95" not in terminal.text and terminal.display[-1].endswith("q Quit"))
        terminal.resize(*LARGE)
        terminal.wait_for("Run p95", "q Quit")


def test_it_needs_a_terminal_and_options_without_a_meaning_are_wrong_usage(peerd: Peerd, client: Client) -> None:
    answer = peerd(*command(client), status=1)
    assert answer.err.splitlines() == [
        "error: peerd top needs a terminal",
        "  try: peerd status, tasks watch and stats print lines",
    ]
    assert "a screen, no JSON" in peerd(*command(client), "--json", status=2).err
    assert "--every: 100ms is too short" in peerd(*command(client, "--every", "100ms"), status=2).err
    assert "--every: " in peerd(*command(client, "--every", "often"), status=2).err


@pytest.mark.slow
def test_without_textual_the_extra_is_named(client: Client) -> None:
    """Python is started with a path on which Textual cannot be found."""
    code = (
        "import sys; sys.modules['textual'] = None\n"
        "from peerd.cli import main\n"
        f"sys.argv = ['peerd', *{command(client)!r}]\n"
        "main()"
    )
    with Terminal([], *SMALL, program=[sys.executable, "-c", code]) as terminal:
        assert terminal.wait_until_ended() == 1
        terminal.wait_for("error: peerd top needs Textual", "try: pip install 'peerd[top]'")
