"""Enqueuing from Django: in the transaction of Django's connection, on its cursor.

The statements are peerd's own, compiled by SQLAlchemy for the database that Django is connected to. They run on
Django's cursor, so they are part of its transaction, its debug log and its errors.
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

from peerd.domain.call import Call
from peerd.domain.errors import UnsupportedDatabase
from peerd.domain.ring import Ring
from peerd.domain.task import NewTask
from peerd.operate.enqueuing import rings_for
from peerd.operate.request import EnqueueOptions, new_task
from peerd.store.connection.caller_session import utc_session
from peerd.store.enqueue import enqueue as store
from peerd.store.enqueue.enqueue import Enqueued

DIALECTS: Final = {
    ("mysql", ""): "mysql+mysqldb",
    ("postgresql", "psycopg"): "postgresql+psycopg",
    ("postgresql", "psycopg2"): "postgresql+psycopg2",
    ("sqlite", ""): "sqlite+pysqlite",
}
"""Django's vendor, and its driver where that matters."""


def enqueue(what: Call | str | NewTask, *, using: str = "default", **options: Unpack[EnqueueOptions]) -> Enqueued:
    """Write one task; it commits with the transaction around it, or not at all.

    Args:
        what: a call, ``handler.with_args(…)``; or a queue's name; or a `NewTask`, which brings its own options.
        using: which of Django's databases; peerd's tables must be in it.
        options: as for `Client.enqueue`.

    Raises:
        InvalidTask: an option is wrong; it is named, and nothing is written.
        NodeNotFound: no node has the name of ``node``.
        django.db.Error: the database refused it. The transaction around it can go on.

    With ``PEERD_CLIENT = Client(…)`` in Django's settings the nodes are rung at after the commit; else they poll.

    Example::

        with transaction.atomic():
            order.save()
            enqueue(send_invoice.with_args(order.pk), unique=f"invoice-{order.pk}")
    """
    return enqueue_many([what], using=using, **options)[0]


def enqueue_many(
    what: Iterable[Call | str | NewTask], *, using: str = "default", **options: Unpack[EnqueueOptions]
) -> list[Enqueued]:
    """Write many tasks, all or none; the answers stand in the order of what was given. See `enqueue`."""
    new = [_new(one, options) for one in what]
    with transaction.atomic(using=using), django_connection(using) as connection, utc_session(connection):
        enqueued = store.enqueue_many(connection, new)
    _ring_after_commit(using, rings_for(new))
    return enqueued


def _ring_after_commit(using: str, rings: list[Ring]) -> None:
    """Wake the nodes when Django's transaction has been committed, if settings.PEERD_CLIENT says by whom."""
    client = getattr(conf.settings, "PEERD_CLIENT", None)
    if client is not None:
        transaction.on_commit(lambda: client.notifier.ring(*rings), using=using)


@contextmanager
def django_connection(using: str) -> Iterator[Connection]:
    """SQLAlchemy's view of Django's connection: it executes on Django's cursor, and begins and ends nothing."""
    wrapper = connections[using]
    connect: Any = partial(DjangoConnection, wrapper)
    engine = Engine(NullPool(connect, reset_on_return=None), _dialect(wrapper), URL.create("django"))
    with engine.connect() as connection:
        yield connection


class DjangoConnection:
    """A connection as the DBAPI has it, whose transaction is somebody else's."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    def cursor(self) -> Any:
        """Django's cursor."""
        return self._wrapper.cursor()

    def commit(self) -> None:
        """Django's to do."""

    def rollback(self) -> None:
        """Django's to do."""

    def close(self) -> None:
        """Django's to do."""


def _new(what: Call | str | NewTask, options: EnqueueOptions) -> NewTask:
    if not isinstance(what, NewTask):
        return new_task(what, **options)
    if options:
        raise TypeError(f"a NewTask brings its own {', '.join(options)}")
    return what


def _dialect(wrapper: Any) -> Any:
    """SQLAlchemy's dialect of the database behind it, with Django's driver, its places written as Django wants them."""
    driver = wrapper.Database.__name__ if wrapper.vendor == "postgresql" else ""
    name = DIALECTS.get((wrapper.vendor, driver))
    if name is None:
        raise UnsupportedDatabase(f"Django's {wrapper.vendor}: peerd knows MySQL, MariaDB, PostgreSQL and SQLite")
    options = {} if wrapper.vendor == "postgresql" else {"paramstyle": "format"}
    dialect: Any = URL.create(name).get_dialect()
    return dialect(dbapi=wrapper.Database, **options)
