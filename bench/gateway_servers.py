"""The queue servers that are measured: each on a port of its own, and each waits for the disk at every write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from bench.databases import BenchDatabase, open_bench_database
from bench.node import running_node
from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.beanstalk_servers import BEANSTALKD, PEERD, BeanstalkServer, why_missing
from tests.support.server import ServerUnavailableError, free_port

PATIENCE: Final = 30.0
SECTIONS: Final = '[gateway.beanstalk]\nbind = "127.0.0.1:{port}"\n'


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """A server that runs.

    Attributes:
        name: as the table calls it.
        port: on this machine.
        process: the first of its processes.
        statements: of all clients of its database so far; None where nobody counts them.
        target: its database, where a bare driver can use it too.
    """

    name: str
    port: int
    process: psutil.Process
    statements: Callable[[], int] | None = None
    target: BenchDatabase | None = None

    def memory(self) -> int:
        """Bytes that its processes have for themselves."""
        return sum(int(one.memory_full_info().uss) for one in [self.process, *self.process.children(recursive=True)])


@contextmanager
def beanstalkd(folder: Path) -> Iterator[MeasuredServer]:
    """Debian's, with a log that is synced at every write."""
    with _run_alone(BEANSTALKD, "beanstalkd -f 0", folder) as server:
        yield server


@contextmanager
def drop_in(folder: Path) -> Iterator[MeasuredServer]:
    """peerd-beanstalkd, with the same options; its database is SQLite."""
    with _run_alone(PEERD, "peerd-beanstalkd -f 0", folder) as server:
        yield server


@contextmanager
def node(kind: str, title: str, _: Path) -> Iterator[MeasuredServer]:
    """A node of peerd with a gateway, on a database that syncs at every commit."""
    with open_bench_database(kind) as target, _run_node(f"node, {title}", target) as server:
        yield server


SERVERS: Final[dict[str, Callable[[Path], AbstractContextManager[MeasuredServer]]]] = {
    "beanstalkd": beanstalkd,
    "drop-in": drop_in,
    "sqlite": partial(node, "sqlite", "SQLite"),
    "mariadb": partial(node, "mariadb", "MariaDB"),
    "mysql": partial(node, "mysql", "MySQL"),
}


@contextmanager
def _run_alone(kind: str, name: str, folder: Path) -> Iterator[MeasuredServer]:
    if reason := why_missing(kind):
        raise ServerUnavailableError(reason)
    server = BeanstalkServer(kind, "-b", str(folder), "-f", "0")
    try:
        server.start()
        assert server.process is not None
        yield MeasuredServer(name, server.port, psutil.Process(server.process.pid))
    finally:
        server.stop()


@contextmanager
def _run_node(name: str, target: BenchDatabase) -> Iterator[MeasuredServer]:
    port = free_port()
    with running_node(target, "gateway", SECTIONS.format(port=port)) as folder:
        eventually(lambda: _answers(port), PATIENCE, message="the node does not answer")
        [master] = [one for one in psutil.Process().children() if one.cwd() == str(folder)]

        def statements() -> int:
            [(_, number)] = target.ask("SHOW GLOBAL STATUS LIKE 'Questions'")
            return int(number)

        yield MeasuredServer(name, port, master, statements if target.kind == "mariadb" else None, target)


def _answers(port: int) -> bool:
    try:
        with BeanstalkConnection(("127.0.0.1", port)) as connection:
            return connection.ask(b"list-tube-used\r\n") == b"USING default\r\n"
    except OSError:
        return False
