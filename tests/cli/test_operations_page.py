"""The SQL in docs/operations.md is run as it is written there."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pymysql
import pytest
from sqlalchemy.engine import make_url

from peerd.operate.client import Client
from peerd.store.schema.migrate import migrate
from tests.cli.conftest import Peerd
from tests.support.server_kinds import INNODB, ON_SERVERS
from tests.support.servers import ServerFactory

pytestmark = [pytest.mark.slow, pytest.mark.every_database]
PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
BLOCK = re.compile(r"^```sql(?P<kinds>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def statements(kind: str, *, install: bool = False) -> list[str]:
    """The page's statements for this database, in their order."""
    found = []
    for block in BLOCK.finditer(PAGE):
        words = block["kinds"].split()
        if ("install" in words) == install and (not words or kind in words):
            found += [one.strip() for one in block["text"].split(";\n") if one.strip()]
    return found


def test_every_statement_works(database: str) -> None:
    with Client(database) as client:
        migrate(client.database)
        for one in statements(client.database.name):
            with client.database.engine.begin() as connection:
                connection.exec_driver_sql(one.replace("%", "%%") if client.database.name != "sqlite" else one)
        [task] = client.tasks.list()
    assert (task.name, task.priority, task.status) == ("transcode", 100, "canceled")
    assert len(statements("sqlite")) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ON_SERVERS)
def test_a_server_that_was_set_up_by_the_page_is_right(
    peerd: Peerd, project: Path, private_server: ServerFactory, kind: str
) -> None:
    server = private_server(kind)
    if kind in INNODB:
        with pymysql.connect(host="127.0.0.1", port=server.port, user="root", autocommit=True) as own:
            for one in [
                "DROP DATABASE peerd",
                "DROP USER IF EXISTS peerd@127.0.0.1",
                *statements("mysql", install=True),
            ]:
                own.cursor().execute(one)
    else:
        address = f"postgresql://peerd@127.0.0.1:{server.port}/postgres"
        with psycopg.connect(address, autocommit=True) as admin:  # whose name is peerd, so the page's is another here
            for one in ["DROP DATABASE peerd", *statements("postgresql", install=True)]:
                words = re.sub(r"(ROLE|OWNER|TO) peerd", r"\1 worker", one)
                admin.execute(words.encode())
    user = "peerd" if kind in INNODB else "worker"
    url = make_url(server.url("peerd")).set(username=user, password="secret")
    address = url.render_as_string(hide_password=False)
    assert peerd("migrate", "--database", address, "--json").json["changed"]
    findings = peerd("doctor", "--database", address, "--json", status=int(kind == "postgresql")).json["findings"]
    bad = {finding["subject"] for finding in findings if finding["level"] == "problem"}
    assert bad <= {"fsync"}, findings  # our test servers are not durable
    assert not [finding for finding in findings if "could not be examined" in finding["message"]]
