"""`peerd top` in a real terminal, and while its database or server is away."""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest

from peerd import Client
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Done
from peerd.store.schema.migrate import migrate
from peerd.web import create_app
from tests.cli.conftest import Peerd
from tests.cli.top.conftest import LARGE, SMALL, fill, opened_top
from tests.cli.top.terminal import Terminal
from tests.support.served_api import served
from tests.support.server_kinds import ON_SERVERS
from tests.support.servers import ServerFactory
from tests.unit.operate.claiming_process import ClaimingProcess

LEAVE_SCREEN = b"\x1b[?1049l"
"""Shows again what was on the terminal before."""
SHOW_CURSOR = b"\x1b[?25h"


def command(client: Client, *options: str) -> list[str]:
    return ["top", *options, "--database", client.database.url.render_as_string()]


def test_the_whole_way_through_the_tables_in_a_terminal(filled: Client, holder: ClaimingProcess) -> None:
    with Terminal(command(filled, "--every", "500ms"), *SMALL) as terminal:
        terminal.wait_for("half of", "q Quit", "2 tasks", " 50%")
        assert terminal.display[-1].endswith("q Quit"), "all keys of the footer are on the screen"
        holder.report(filled.tasks.get(5), 0.75, "three quarters")
        terminal.wait_for(" 75%")
        terminal.press("2")
        terminal.wait_for("2 queues")
        terminal.press("\x1b[Z\r")
        terminal.wait_for("task 5 video/transcode is working")
        holder.end(filled.tasks.get(5), Done())
        terminal.wait_for("task 5 video/transcode is done")
        terminal.press("\x1b")
        terminal.wait_for("1 task")
        terminal.press("cy")
        terminal.wait_for("task 4 was canceled", "no task")


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


def test_it_needs_a_terminal_and_options_without_a_meaning_are_wrong_usage(peerd: Peerd, client: Client) -> None:
    answer = peerd(*command(client), status=1)
    assert "try: peerd status, tasks watch and stats print lines" in answer.err
    assert "a screen, no JSON" in peerd(*command(client), "--json", status=2).err
    assert "--every: 100ms is too short" in peerd(*command(client, "--every", "100ms"), status=2).err


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


@pytest.fixture
def token_file(filled: Client, tmp_path: Path) -> Path:
    """Of a token that may look at everything, and do nothing."""
    file = tmp_path / "token"
    file.write_text(filled.tokens.create("reader", ["view"]).secret)
    return file


@pytest.mark.slow
def test_a_token_that_may_view_sees_everything_and_is_refused_an_action(filled: Client, token_file: Path) -> None:
    with (
        served(create_app(filled)) as address,
        Terminal(["top", "--server", address, "--token-file", str(token_file)], *LARGE) as terminal,
    ):
        terminal.wait_for(address, "half of five.mov", "2 tasks", "nodes 1 of 1")
        for key, text in (("2", "2 queues"), ("3", "1 node"), ("4", "1 alert"), ("1", "2 tasks")):
            terminal.press(key)
            terminal.wait_for(text)
        terminal.press("cy")
        terminal.wait_for("not done: 'reader' must not do tasks.cancel: it needs the right operate")
        terminal.press("\r")
        terminal.wait_for("task 5 video/transcode is working")
        terminal.press("\x1b")
        terminal.wait_for("1 Tasks", "2 tasks")
        filled.tokens.revoke(filled.tokens.list()[0].id)
        terminal.wait_for("what you see is", "401")
        with Terminal(["top", "--server", address], *LARGE, environment={"PEERD_TOKEN": "peerd_wrong"}) as other:
            assert other.wait_until_ended() == 1
            other.wait_for("error: ", "401")
    assert filled.tasks.get(5).status is Status.WORKING


@pytest.mark.slow
@pytest.mark.one_database
@pytest.mark.parametrize("kind", ON_SERVERS)
async def test_a_database_that_goes_away_and_comes_back(kind: str, private_server: ServerFactory) -> None:
    server = private_server(kind)
    with closing(Client(server.url("peerd"))) as client:
        migrate(client.database)
        fill(client, ClaimingProcess(client.database))
        async with opened_top(client) as top:
            server.kill()
            await top.until_shown("what you see is", "half of")
            await top.press("c", "y")
            await top.until_shown("not done: ")
            await top.press("enter")
            await top.until_shown("the database does not answer")
            await top.press("escape")
            server.start()
            await top.until_gone("what you see is")
            client.tasks.cancel(5)
            await top.until_shown("1 task")


@pytest.mark.slow
def test_a_frozen_database_is_mentioned_and_does_not_keep_the_program_from_ending(
    peerd: Peerd, private_server: ServerFactory
) -> None:
    server = private_server("postgresql")
    url = server.url("peerd")
    with closing(Client(url)) as client:
        migrate(client.database)
        fill(client, ClaimingProcess(client.database))
    with Terminal(["top", "--every", "500ms", "--database", url], *SMALL) as terminal:
        terminal.wait_for("half of", "q Quit")
        server.freeze()
        try:
            terminal.wait_for("what you see is", "it does not answer")
            terminal.press("2")
            terminal.wait_for("2 queues")
            terminal.press("q")
            assert terminal.wait_until_ended(10) == 0
        finally:
            server.thaw()
