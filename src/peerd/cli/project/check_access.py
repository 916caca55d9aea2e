"""Checks whether other machines would reach an API that has no users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.cli.project.check_report import ConfigReport
from peerd.config import Settings
from peerd.config.address import is_sqlite
from peerd.domain.bind_address import is_local, parse_bind_address
from peerd.operate.client import Client
from peerd.store.access.users import has_access_rows
from peerd.store.connection.engines import with_driver
from peerd.store.schema.tables import users

DASHBOARD = "peerd.web:app"
REMEDY = 'add a user first (peerd users add NAME --role admin), or bind it to this machine, "127.0.0.1:8080"'


def check_exposure(settings: Settings, report: ConfigReport) -> None:
    """Find addresses of the API that other machines reach, while it has neither users nor tokens.

    A web process does not start with such an address either, whatever was checked.
    """
    exposed = list(_exposed(settings))
    if not exposed or settings.access.proxy_user_header is not None:
        return
    if report.has_problem_in("database") or _has_users(settings.database.url):
        return
    for name, bind in exposed:
        problem = f"{bind} can be reached from other machines, and the API has no users"
        report.add_problem(("web", name, "bind"), problem, REMEDY)


def _exposed(settings: Settings) -> Iterator[tuple[str, str]]:
    for name, web in settings.web.items():
        for bind in web.bind if web.enabled and web.app == DASHBOARD else ():
            if not is_local(parse_bind_address(bind)):
                yield name, bind


def _has_users(url: str) -> bool:
    if is_sqlite(url) and not Path(with_driver(url).database or "").exists():
        return False
    with Client(url) as client:
        return client.database.read(_reads_users)


def _reads_users(connection: Connection) -> bool:
    """Whether there are any; an embedded database of an older version has no such table yet."""
    return sa.inspect(connection).has_table(users.name) and has_access_rows(connection)
