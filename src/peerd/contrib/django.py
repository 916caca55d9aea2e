"""Enqueuing from Django, in the transaction of Django's connection.

The statements are peerd's own, compiled by SQLAlchemy for Django's database. They run on Django's cursor, so Django's
transaction, debug log and errors include them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Unpack

from django import conf  # type: ignore[import-untyped]
from django.db import connections, transaction  # type: ignore[import-untyped]
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.pool import NullPool

from peerd.domain.errors import UnsupportedDatabase
from peerd.domain.task import Call, NewTask
from peerd.operate.enqueuing import rings_for
from peerd.operate.request import EnqueueOptions, new_task
from peerd.store import enqueue as store
from peerd.store.connection.mysql import utc_session
from peerd.store.enqueue import Enqueued

DIALECTS: Final = {
    ("mysql", ""): "mysql+mysqldb",
    ("postgresql", "psycopg"): "postgresql+psycopg",
    ("postgresql", "psycopg2"): "postgresql+psycopg2",
    ("sqlite", ""): "sqlite+pysqlite",
}
"""SQLAlchemy's names by Django's vendor and, for PostgreSQL, driver."""


def enqueue(what: Call | str | NewTask, *, using: str = "default", **options: Unpack[EnqueueOptions]) -> Enqueued:
    """Write one task; it is committed with the surrounding transaction, or not at all.

    Args:
        what: a call, ``handler.with_args(…)``; or a queue's name; or a `NewTask`, which brings its own options.
        using: which of Django's databases; peerd's tables must be in it.
        options: as for `Client.enqueue`.

    Raises:
        InvalidTask: an option is wrong; the error names it.
        NodeNotFound: no node has the name of ``node``.
        django.db.Error: the database refused it. The surrounding transaction can continue.

    With ``PEERD_CLIENT = Client(…)`` in Django's settings the nodes are notified after the commit; else they poll.

    Example::

        with transaction.atomic():
            order.save()
            enqueue(send_invoice.with_args(order.pk), unique=f"invoice-{order.pk}")
    """
    return enqueue_many([what], using=using, **options)[0]


def enqueue_many(
    what: Iterable[Call | str | NewTask], *, using: str = "default", **options: Unpack[EnqueueOptions]
) -> list[Enqueued]:
    """Write many tasks, all or none, and return them in the same order. See `enqueue`."""
    tasks = []
    for call in what:
        if isinstance(call, NewTask) and options:
            raise TypeError(f"a NewTask brings its own {', '.join(options)}")
        tasks.append(call if isinstance(call, NewTask) else new_task(call, **options))
    with transaction.atomic(using=using), django_connection(using) as connection, utc_session(connection):
        enqueued = store.enqueue_many(connection, tasks)
    client = getattr(conf.settings, "PEERD_CLIENT", None)
    if client is not None:
        transaction.on_commit(lambda: client.notifier.ring(*rings_for(tasks)), using=using)
    return enqueued


@contextmanager
def django_connection(using: str) -> Iterator[Connection]:
    """A SQLAlchemy connection that executes on Django's cursor, and neither begins nor ends transactions."""
    wrapper = connections[using]
    connect: Any = partial(DjangoConnection, wrapper)
    engine = Engine(NullPool(connect, reset_on_return=None), _dialect(wrapper), URL.create("django"))
    with engine.connect() as connection:
        yield connection


class DjangoConnection:
    """A DBAPI connection on Django's cursor; Django commits, rolls back and closes."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    def cursor(self) -> Any:
        """Django's cursor."""
        return self._wrapper.cursor()

    def commit(self) -> None:
        """Nothing."""

    rollback = close = commit


def _dialect(wrapper: Any) -> Any:
    """SQLAlchemy's dialect for Django's database and driver, with Django's style of parameters."""
    driver = wrapper.Database.__name__ if wrapper.vendor == "postgresql" else ""
    name = DIALECTS.get((wrapper.vendor, driver))
    if name is None:
        raise UnsupportedDatabase(f"Django's {wrapper.vendor}: peerd knows MySQL, MariaDB, PostgreSQL and SQLite")
    options = {} if wrapper.vendor == "postgresql" else {"paramstyle": "format"}
    dialect: Any = URL.create(name).get_dialect()
    return dialect(dbapi=wrapper.Database, **options)
