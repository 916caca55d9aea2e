"""`peerd top` while its database or server is away: it says so with the age of what it shows, and comes back."""

from __future__ import annotations

from contextlib import closing

import pytest

from peerd import Client
from peerd.store.schema.migrate import migrate
from tests.cli.conftest import Peerd
from tests.cli.top.conftest import SMALL, fill, opened_top
from tests.cli.top.terminal import Terminal
from tests.support.servers import ServerFactory
from tests.unit.operate.claiming_process import ClaimingProcess

pytestmark = pytest.mark.slow


@pytest.mark.one_database
@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
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


def test_a_database_that_does_not_answer_at_the_start_is_an_error_of_one_line(peerd: Peerd) -> None:
    with Terminal(["top", "--database", "postgresql://peerd@127.0.0.1:1/peerd"], *SMALL) as terminal:
        assert terminal.wait_until_ended() == 1
        terminal.wait_for("error: ", "try: ", "127.0.0.1:1")
        assert "Traceback" not in terminal.text
