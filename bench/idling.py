"""Idling: what a whole node that has nothing to do asks its database. On SQLite there is no server that counts.

All is counted that a server gets, as in tests/cluster/test_idle_statements.py: commits, and looks whether a connection
is there.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.databases import BenchDatabase
from bench.jobs import note, notes_in
from bench.node import running_node
from bench.pick_up_latency import PATIENCE, WORKER
from bench.samples import Idle
from bench.sizes import Sizes
from peerd.testing import eventually

STATEMENT: Final = re.compile(r"LOG:  (?:statement|execute [^:]*|fastpath[^:]*): (\S+)")


def measure(target: BenchDatabase, sizes: Sizes) -> Iterator[Idle]:
    """Count every statement that the server gets, commits included, for a while."""
    if target.kind == "sqlite":
        return
    target.empty()
    notes = target.folder / "idle-notes"
    with running_node(target, "idle", WORKER.format(notes=notes)):
        target.client.enqueue(note.with_args(0))
        eventually(lambda: 0 in notes_in(notes), timeout=PATIENCE, message="the node has not come up")
        target.client.database.close()
        time.sleep(sizes.idle_settling)
        counter = _QuestionsOfMariaDB(target) if target.kind == "mariadb" else _LinesOfPostgreSQL(target)
        before, began = counter.count(), time.monotonic()
        time.sleep(sizes.idle_seconds)
        kinds, seconds = counter.count() - before, time.monotonic() - began
        counter.close()
    yield Idle(database=target.name, seconds=seconds, statements=kinds.total(), kinds=dict(kinds.most_common()))


class _QuestionsOfMariaDB:
    """The server's own counts, without those that ask for them."""

    def __init__(self, target: BenchDatabase) -> None:
        self._stage = target
        self._own = 0

    def count(self) -> Counter[str]:
        """All so far, of every session."""
        found = self._stage.ask(r"SHOW GLOBAL STATUS LIKE 'Com\_%'")
        self._own += 1
        kinds = Counter({name[len("Com_") :].upper().replace("_", " "): int(number) for name, number in found})
        kinds["SHOW STATUS"] -= self._own
        return kinds

    def close(self) -> None:
        """Nothing was changed."""


class _LinesOfPostgreSQL:
    """The server logs each statement of all sessions but ours."""

    def __init__(self, target: BenchDatabase) -> None:
        assert target.server is not None
        self._stage = target
        self._log: Path = target.server.log
        target.ask("SET log_statement = 'none'")
        self._set("ALTER SYSTEM SET log_statement = 'all'")
        self._from = self._log.stat().st_size

    def count(self) -> Counter[str]:
        """All since the start."""
        with self._log.open(encoding="utf-8", errors="replace") as log:
            log.seek(self._from)
            return Counter(found[1].upper() for line in log if (found := STATEMENT.search(line)))

    def close(self) -> None:
        """Log no more."""
        self._set("ALTER SYSTEM RESET log_statement")
        self._stage.ask("RESET log_statement")

    def _set(self, statement: str) -> None:
        self._stage.ask(statement)
        self._stage.ask("SELECT pg_reload_conf()")
        time.sleep(1.0)  # until every session has read it
