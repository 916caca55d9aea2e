"""Procrastinate on PostgreSQL, by psycopg, woken by NOTIFY as by default."""

from __future__ import annotations

from typing import Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from bench.peers import contract


class Measured(contract.PeerQueue):
    """Procrastinate: an asynchronous worker; a synchronous application that defers."""

    distribution = "procrastinate"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._app, self._noop, self._note = app(SyncPsycopgConnector(conninfo=url))

    def prepare(self) -> None:
        """Apply its schema, if it is not there, and empty its tables."""
        self._app.open()
        if not self._app.check_connection():
            self._app.schema_manager.apply_schema()
        self._app.connector.get_sync_connector().execute_query("TRUNCATE procrastinate_jobs CASCADE")

    def enqueue_singly(self, number: int) -> None:
        """`defer`, again and again."""
        for _ in range(number):
            self._noop.defer()

    def enqueue_together(self, number: int) -> None:
        """`batch_defer`, a thousand at a time."""
        for done in range(0, number, 1000):
            self._noop.batch_defer(*({} for _ in range(min(1000, number - done))))

    def enqueue_note(self, number: int) -> None:
        """`defer`."""
        self._note.defer(number=number)

    def left(self) -> int:
        """Jobs that have not succeeded."""
        found = self._app.connector.get_sync_connector().execute_query_one(
            "SELECT count(*) AS left FROM procrastinate_jobs WHERE status <> 'succeeded'"
        )
        return int(found["left"])

    def work(self, at_once: int) -> None:
        """Its worker; the jobs are coroutines."""
        worker, _, _ = app(PsycopgConnector(conninfo=self.url))
        worker.run_worker(concurrency=at_once)


def app(connector: Any) -> tuple[Any, Any, Any]:
    """The application with its two tasks."""
    made = App(connector=connector)

    @made.task(name="noop")
    async def noop() -> None:
        contract.noop()

    @made.task(name="note")
    async def note(number: int) -> None:
        contract.note(number)

    return made, noop, note
