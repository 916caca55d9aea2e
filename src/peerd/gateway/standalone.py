"""What `peerd-beanstalkd` runs: the gateway on a SQLite file of its own, in one process with the duties of a node.

The file is in a folder, which is kept (-b) or in memory and ends with the process. A process holds a lock on its folder
as long as it runs. So a second one refuses to start in it, and the folder of a process that was killed is recognized by
its lock being free.

Changes are written to the disk each before its answer, several times in a second, or by the system: beanstalkd's flags
-f and -F say which. Between two writes a power failure loses the latest changes, and no others; the end of the process
alone loses nothing.

The server is a node to the tables, with rows in ``nodes`` and ``processes``, and their heartbeats. No other server
opens the file, because its folder is locked. So at a start all earlier processes of the node have ended, and what they
had reserved is released.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, TypeVarTuple

from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine

from peerd import __version__
from peerd.config.settings import GatewaySettings
from peerd.gateway.gateway import Gateway
from peerd.gateway.operations import Holder
from peerd.gateway.server import GatewayServer
from peerd.gateway.standalone_start import PROGRAM, Flags, ProgramExit
from peerd.runtime.observability.events import ComponentFailed, EventBus
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store import nodes, processes
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.jobs.holding import release_all
from peerd.store.schema.migrate import require_current_schema

DATABASE: Final = "peerd.sqlite"
LOCK: Final = "lock"
"""beanstalkd locks a file of this name in the same way, so that the two never serve one folder together."""
LOG_OF_BEANSTALKD: Final = "binlog.*"
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - folders in it are created with mode 0700
MEMORY_NEEDED: Final = 2**30
"""Free bytes there, without which the folder for temporary files is used: a container often has 64 MiB of it."""
MEMORY_PREFIX: Final = f"{PROGRAM}-"
TRIES: Final = 10
CANNOT_USE_FOLDER: Final = 10
"""The exit status where the folder cannot be used, as of beanstalkd."""
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
LOG_SUFFIX: Final = "-wal"
PAGE_SIZE: Final = 4096
"""SQLite's pages, in bytes; its log has one and a short header for each changed page."""
POOL_SIZE: Final = 4
JOIN_TIMEOUT: Final = 5.0
REPEAT_AFTER: Final = 1.0
"""Seconds after which a write that has failed is repeated, if the interval is shorter."""


class JobFolder:
    """A folder that this process has locked.

    Attributes:
        path: of the folder.
        is_in_memory: it is removed by `close`.
    """

    def __init__(self, path: Path, lock: int, *, is_in_memory: bool) -> None:
        self.path = path
        self.is_in_memory = is_in_memory
        self._lock = lock

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.path / DATABASE

    def foreign_logs(self) -> list[str]:
        """The names of files in which beanstalkd itself has left jobs."""
        return sorted(file.name for file in self.path.glob(LOG_OF_BEANSTALKD))

    def close(self) -> None:
        """Remove a folder in memory, and release the lock. Close the database before."""
        if self.is_in_memory:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def open_folder(path: str) -> JobFolder:
    """Lock a folder that is kept.

    Raises:
        ProgramExit: there is no such folder, it cannot be written, or another process serves it.
    """
    folder = Path(path).absolute()
    try:
        return JobFolder(folder, _lock(folder), is_in_memory=False)
    except OSError as error:
        in_use = error.errno in {errno.EACCES, errno.EAGAIN} and os.access(folder, os.W_OK | os.X_OK)
        problem = "another process serves it" if in_use else error.strerror
        raise ProgramExit(CANNOT_USE_FOLDER, f"{PROGRAM}: cannot use the folder {path}: {problem}\n") from error


def open_folder_in_memory() -> JobFolder:
    """Create a folder in memory, or among the temporary files; those of processes that were killed are removed.

    Raises:
        ProgramExit: it cannot be locked.
    """
    parent = MEMORY if _has_memory() else Path(tempfile.gettempdir())
    remove_abandoned(parent)
    for _ in range(TRIES):
        folder = Path(tempfile.mkdtemp(prefix=MEMORY_PREFIX, dir=parent))
        with suppress(OSError):  # another process took it for abandoned, before it was locked
            return JobFolder(folder, _lock(folder), is_in_memory=True)
    raise ProgramExit(CANNOT_USE_FOLDER, f"{PROGRAM}: cannot lock a folder in {parent}\n")


def _has_memory() -> bool:
    try:
        space = os.statvfs(MEMORY)
    except OSError:
        return False
    return os.access(MEMORY, os.W_OK | os.X_OK) and space.f_bavail * space.f_frsize >= MEMORY_NEEDED


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders in memory whose processes have ended."""
    for folder in _own_folders(parent):
        with suppress(OSError):
            lock = _lock(folder)
            try:
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _own_folders(parent: Path) -> Iterator[Path]:
    for folder in parent.glob(f"{MEMORY_PREFIX}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink():
                yield folder


def _lock(folder: Path) -> int:
    """The descriptor of the folder's lock file, locked.

    Raises:
        OSError: another process holds the lock, or has removed the folder meanwhile, or it cannot be written.
    """
    path = folder / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# ---------------------------------------------------------------- when changes are written to the disk


def synchronous_mode(flags: Flags) -> str:
    """SQLite's ``synchronous`` for these flags.

    >>> from peerd.gateway.standalone_start import parse_flags
    >>> [synchronous_mode(parse_flags(["-b", "jobs", flag], "")) for flag in ("-f0", "-f50", "-F")]
    ['FULL', 'NORMAL', 'OFF']
    """
    if flags.folder is None or flags.sync_interval is None:
        return "OFF"
    return "NORMAL" if flags.sync_interval else "FULL"


class StandaloneDatabase(Database):
    """A SQLite file whose changes are written to the disk as the flags say.

    Args:
        file: it is created if it does not exist.
        flags: of the command line.
        on_error: called with an error of the disk, on a thread.
    """

    def __init__(self, file: Path, flags: Flags, on_error: Callable[[OSError], None]) -> None:
        super().__init__(URL.create("sqlite", database=str(file)), pool_size=POOL_SIZE)
        mode = synchronous_mode(flags)
        self._on_sqlite.sets_durability = mode == "FULL"
        for engine in self.engines.distinct():
            _configure_log(engine, mode, flags.log_size)
        self._synchronizer: LogSynchronizer | None = None
        if mode == "NORMAL" and flags.sync_interval:
            self._synchronizer = LogSynchronizer(file, flags.sync_interval, on_error)
            self._synchronizer.start()

    def run_group(
        self, operation: Callable[[Connection, *Ts], T], /, *args: *Ts, durable: bool = True, waits: bool = True
    ) -> T:
        """`Database.run_group`; after its commit, the disk has to follow."""
        result = super().run_group(operation, *args, durable=durable, waits=waits)
        if self._synchronizer is not None:
            self._synchronizer.note_commit()
        return result

    def close(self) -> None:
        """Write what was committed to the disk, and close all connections."""
        if self._synchronizer is not None:
            self._synchronizer.close()
        super().close()


def _configure_log(engine: Engine, mode: str, log_size: int) -> None:
    """Let the connections that an engine opens write as ``mode`` says, with a log of about so many bytes."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _: Any) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(f"PRAGMA synchronous = {mode}")
            cursor.execute(f"PRAGMA wal_autocheckpoint = {max(1, log_size // PAGE_SIZE)}")
            cursor.execute(f"PRAGMA journal_size_limit = {log_size}")


class LogSynchronizer:
    """Writes SQLite's log to the disk after commits, at most once in each interval, on a thread of its own.

    A write that has failed is repeated, also without another commit.
    Only the commits of queue clients are followed: a heartbeat that a power failure undoes is none that is missed.

    Args:
        file: the SQLite file.
        interval: seconds.
        on_error: called with an error of the disk, on the thread.
    """

    def __init__(self, file: Path, interval: float, on_error: Callable[[OSError], None]) -> None:
        self._log = f"{file}{LOG_SUFFIX}"
        self._interval = interval
        self._on_error = on_error
        self._is_dirty = threading.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peerd-log", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def note_commit(self) -> None:
        """Have what was committed so far written within the interval."""
        self._is_dirty.set()

    def close(self) -> None:
        """Write what was committed so far, and end."""
        self._is_closed.set()
        self._is_dirty.set()
        self._thread.join(JOIN_TIMEOUT)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            self._is_dirty.wait()
            self._is_dirty.clear()
            if self._synchronize():
                self._is_closed.wait(self._interval)
            else:
                self._is_dirty.set()
                self._is_closed.wait(max(self._interval, REPEAT_AFTER))
        self._synchronize()

    def _synchronize(self) -> bool:
        try:
            _write_to_disk(self._log)
        except FileNotFoundError:
            return True  # it is empty
        except OSError as error:
            self._on_error(error)
            return False
        return True


def _write_to_disk(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------- the server


ROLE: Final = "gateway"
CAUSE: Final = "it was stopped"
DUTIES_EVERY: Final = 5.0
"""Seconds between two rounds of heartbeats and chores."""
POLL_EVERY: Final = 1.0
"""Seconds between two polls for waiting clients: programs that write the file themselves do not ring."""
DEFAULT_TTR: Final = 60
FINISH_WITHIN: Final = 3.0
"""Seconds that the release of the last reservations may take."""
UNFINISHED_COMMAND: Final = 600.0
"""Seconds for a command that has begun; beanstalkd itself waits without end."""
Maintain = Callable[[Database], None]
"""Keeps the tables healthy; it is called every `DUTIES_EVERY` seconds."""


class OwnNode:
    """The rows of this process."""

    def __init__(self) -> None:
        self._incarnation = nodes.new_incarnation()
        self._process_id = 0

    def register(self, connection: Connection, default_ttr: int) -> Holder:
        """Begin an incarnation, release the reservations of earlier ones, and register the process."""
        earlier = nodes.find_node(connection, PROGRAM)
        node_id = nodes.register_incarnation(
            connection,
            PROGRAM,
            self._incarnation,
            replaces=None if earlier is None else earlier.incarnation,
            version=__version__,
        )
        assert node_id is not None
        release_all(connection, node_id)
        processes.end_earlier_processes(connection, node_id, self._incarnation)
        self._process_id = processes.register_process(
            connection,
            node_id=node_id,
            incarnation=self._incarnation,
            kind=ROLE,
            slot=PROGRAM,
            role=ROLE,
            pid=os.getpid(),
        )
        return Holder(node_id, self._incarnation, self._process_id, default_ttr)

    def heartbeat(self, connection: Connection) -> None:
        """Show other programs that have opened the file that this process runs."""
        nodes.heartbeat_only(connection, PROGRAM, self._incarnation)
        processes.heartbeat_process(connection, self._process_id)

    def deregister(self, connection: Connection) -> None:
        """Record the end of the process and of the incarnation."""
        processes.end_process(connection, self._process_id, CAUSE)
        nodes.deregister_node(connection, PROGRAM, self._incarnation)


class StandaloneServer:
    """Serves beanstalkd's protocol on a SQLite file of its own.

    Args:
        flags: of the command line.
        folder: has the file; the caller closes it afterwards.
        maintain: does the chores of a manager.
        events: what happens.
    """

    def __init__(self, flags: Flags, folder: JobFolder, maintain: Maintain, events: EventBus) -> None:
        self._flags = flags
        self._maintain = maintain
        self._events = events
        self._node = OwnNode()
        self._database = StandaloneDatabase(folder.database, flags, partial(self._report, "log"))

    async def run(self, sockets: Sequence[socket.socket], stop: asyncio.Event, drain: asyncio.Event) -> None:
        """Serve until `stop` is set; once `drain` is set, no job may be put.

        Raises:
            SchemaTooNew: a newer version of peerd has used the file.
            DatabaseUnavailable: the file cannot be used.
        """
        try:
            await self._open(sockets)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(one)
                    for one in (self._follow(drain), self._perform_duties(), self._gateway.poll_for_waiters())
                ]
                await stop.wait()
                for task in tasks:
                    task.cancel()
            await self._close()
        finally:
            self._database.close()

    async def _open(self, sockets: Sequence[socket.socket]) -> None:
        require_current_schema(self._database)
        holder = self._database.run(self._node.register, DEFAULT_TTR)
        outages = OutageTracker(self._events, asyncio.get_running_loop().time)
        settings = gateway_settings(self._flags)
        self._gateway = Gateway(
            self._database, holder, settings, {}, lambda _: None, self._events, outages, is_alone=True
        )
        self._gateway.poll_every = POLL_EVERY
        self._gateway.start()
        self._server = GatewayServer(self._gateway, self._events)
        self._server.start(sockets)

    async def _close(self) -> None:
        """Close all connections at once, as beanstalkd does; what they have reserved is released.

        What cannot be released in time is released by the next start.
        """
        self._server.stop_accepting(close_listeners=True)
        await self._server.drain(0.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_WITHIN):
                await self._gateway.operations.finish()
        self._gateway.close()
        await asyncio.to_thread(self._database.run, self._node.deregister)

    async def _follow(self, drain: asyncio.Event) -> None:
        await drain.wait()
        self._gateway.refuses_puts = True

    async def _perform_duties(self) -> None:
        while True:
            await asyncio.sleep(DUTIES_EVERY)
            try:
                await asyncio.to_thread(self._database.run, self._node.heartbeat)
                await asyncio.to_thread(self._maintain, self._database)
            except Exception as error:  # noqa: BLE001 - it is repeated in the next round
                self._report("duties", error)

    def _report(self, component: str, error: Exception) -> None:
        described = describe_exception(error)
        self._events.emit(ComponentFailed(component=component, error=described, again_in=DUTIES_EVERY))


def gateway_settings(flags: Flags) -> GatewaySettings:
    """The limits of the server, with beanstalkd's protocol alone."""
    return GatewaySettings(
        protocols=("beanstalk",),
        max_job_size=flags.max_job_size,
        max_buffered_total=max(268_435_456, 4 * flags.max_job_size),
        head_timeout=UNFINISHED_COMMAND,
        body_timeout=UNFINISHED_COMMAND,
    )
