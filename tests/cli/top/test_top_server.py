"""`peerd top --server`: a served app, a token with few rights, and a server that goes away and comes back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from peerd import Client
from peerd.domain.lifecycle import Status
from peerd.web import create_app
from tests.cli.top.conftest import LARGE, SMALL
from tests.cli.top.terminal import Terminal
from tests.support.served_api import ServedAgain, served

pytestmark = pytest.mark.slow


@pytest.fixture
def token_file(filled: Client, tmp_path: Path) -> Path:
    """Of a token that may look at everything, and do nothing."""
    file = tmp_path / "token"
    file.write_text(filled.tokens.create("reader", ["view"]).secret)
    return file


def test_a_token_that_may_view_sees_everything_and_is_refused_an_action(filled: Client, token_file: Path) -> None:
    with (
        served(create_app(filled)) as address,
        Terminal(["top", "--server", address, "--token-file", str(token_file)], *LARGE) as terminal,
    ):
        terminal.wait_for(address, "half of five.mov", "2 tasks", "nodes 1 of 1")
        for key, text in (("2", "2 queues"), ("3", "1 node"), ("4", "1 alert"), ("1", "2 tasks")):
            terminal.press(key)
            terminal.wait_for(text)
        terminal.press("c")
        terminal.wait_for("Cancel task 5 (video/transcode)?")
        terminal.press("y")
        terminal.wait_for("not done: 'reader' must not do tasks.cancel: it needs the right operate")
        terminal.press("\r")
        terminal.wait_for("task 5 video/transcode is working")
        terminal.press("qq")
        assert terminal.wait_until_ended() == 0
    assert filled.tasks.get(5).status is Status.WORKING


def test_a_token_with_the_right_acts(filled: Client, tmp_path: Path) -> None:
    secret = filled.tokens.create("operator", ["view", "operate"]).secret
    with (
        served(create_app(filled)) as address,
        Terminal(["top", "--server", address], *SMALL, environment={"PEERD_TOKEN": secret}) as terminal,
    ):
        terminal.wait_for("half of", "q Quit")
        terminal.press("cy")
        terminal.wait_for("task 5 was canceled", "1 task")
    assert filled.tasks.get(5).status is Status.CANCELED
    assert filled.audit.page(limit=1).items[0].actor == "operator"


def test_a_server_that_goes_away_and_comes_back_and_a_token_that_is_revoked(filled: Client, token_file: Path) -> None:
    options = ["--every", "500ms", "--token-file", str(token_file)]
    with (
        closing(ServedAgain(create_app(filled))) as server,
        Terminal(["top", "--server", server.address, *options], *LARGE) as terminal,
    ):
        terminal.wait_for("half of", "q Quit")
        server.stop()
        terminal.wait_for("what you see is")
        server.start()
        filled.tasks.cancel(5)
        terminal.wait_for("  1 task\n")
        assert "what you see is" not in terminal.text
        filled.tokens.revoke(filled.tokens.list()[0].id)
        terminal.wait_for("what you see is", "401")
        terminal.press("q")
        assert terminal.wait_until_ended() == 0
        with Terminal(["top", "--server", server.address], *LARGE, environment={"PEERD_TOKEN": "peerd_wrong"}) as other:
            assert other.wait_until_ended() == 1
            other.wait_for("error: ", "401")
            assert "Traceback" not in other.text
