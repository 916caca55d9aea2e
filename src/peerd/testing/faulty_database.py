"""A database in which calls fail, wait or lose their replies when a test says so."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, TypeVarTuple, cast

from sqlalchemy import event
from sqlalchemy.engine import URL, Connection

from peerd.domain.errors import DatabaseUnavailable
from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Method = TypeVar("Method", bound=Callable[..., Any])
FaultCondition = Callable[..., object]

FILE_NAME: Final = "peerd.sqlite"
MAX_HOLD: Final = 60.0
"""Seconds; a test that forgot to heal what it holds ends nevertheless."""


class Fault:
    """A fault of some calls, until it has happened so many times or is healed.

    As a context manager it is healed at the end of the block.
    """

    def __init__(
        self,
        operation: str | None,
        call: int,
        times: int | None,
        when: FaultCondition | None,
        effect: Callable[[Fault], None],
    ) -> None:
        if call < 1 or (times is not None and times < 1):
            raise ValueError("call and times are counted from 1")
        self.hits = 0
        """How often it has happened."""
        self.healed = threading.Event()
        self.apply: Callable[[], None] = partial(effect, self)
        """Apply it to a call."""
        self._operation = operation
        self._skip = call - 1
        self._left = times
        self._when = when

    def heal(self) -> None:
        """End it; a call that it holds up continues."""
        self.healed.set()

    def __enter__(self) -> Self:
        """The fault itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Heal it."""
        self.heal()

    def applies_to(self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether it happens to this call, which is counted. Under the database's lock."""
        if self.healed.is_set() or self._left == 0 or self._operation not in (None, operation):
            return False
        if self._when is not None and not self._when(*args, **kwargs):
            return False
        if self._skip:
            self._skip -= 1
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1
        return True


def _raising(error: Exception | Callable[[], Exception]) -> Callable[[Fault], None]:
    def effect(_: Fault) -> None:
        raise error.with_traceback(None) if isinstance(error, Exception) else error()

    return effect


def _unavailable(reason: str) -> Callable[[Fault], None]:
    return _raising(lambda: DatabaseUnavailable(reason))


def _waiting(seconds: float) -> Callable[[Fault], None]:
    def effect(fault: Fault) -> None:
        fault.healed.wait(seconds)

    return effect


def _with_faults(method: Method) -> Method:
    """A method of `Database` that runs an operation, with the faults before and after it."""

    @wraps(method)
    def run(self: FaultyDatabase, operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        with self._faults_around(operation_name(operation), args, kwargs):
            return method(self, operation, *args, **kwargs)

    return cast("Method", run)


class FaultyDatabase(Database):
    """A `Database` with faults that a test adds. Safe to use from several threads.

    An operation is named as the function that does it: ``claim``, ``complete``, ``record_outcomes``, ``touch``,
    ``report_progress``; a call of a `Client` as its method: ``enqueue``, ``cancel``. Without a name, any call is meant.
    ``call`` counts the calls of it from now on: 1 is the next. ``times`` is the number of calls that are affected; None
    is until the fault is healed. ``when``, called with the operation's arguments, says which calls count at all; it
    must not use the database.

    Args:
        url: ``sqlite:///file``, ``mysql://…`` or ``postgresql://…``.
        pool_size: connections that are kept.

    >>> database = FaultyDatabase("sqlite:////tmp/peerd-example.sqlite")
    >>> def one(connection: Connection) -> int:
    ...     return connection.exec_driver_sql("select 1").scalar_one()
    >>> _ = database.fail("one", call=2)
    >>> database.read(one)
    1
    >>> database.read(one)
    Traceback (most recent call last):
    peerd.domain.errors.DatabaseUnavailable: the database does not answer: a test made call 2 of one fail
    >>> database.read(one), database.calls["one"]
    (1, 3)
    >>> database.close()
    """

    def __init__(self, url: str | URL, *, pool_size: int = 10) -> None:
        super().__init__(url, pool_size=pool_size)
        self.calls: Counter[str] = Counter()
        """How often each operation was called, with any result."""
        self._before: list[Fault] = []
        self._after: list[Fault] = []
        self._faults_lock = threading.Lock()

    def fail(
        self,
        operation: str | None = None,
        *,
        call: int = 1,
        times: int | None = 1,
        error: Exception | Callable[[], Exception] | None = None,
        when: FaultCondition | None = None,
    ) -> Fault:
        """Refuse a call before anything of it is done.

        Args:
            operation: its name; None is any.
            call: which of the coming calls is the first to fail.
            times: how many fail.
            error: the error that it raises, or a function that makes it; else `DatabaseUnavailable`.
            when: which calls count.
        """
        reason = f"a test made call {call} of {operation or 'any operation'} fail"
        effect = _unavailable(reason) if error is None else _raising(error)
        return self._add(self._before, Fault(operation, call, times, when, effect))

    def lose_reply(
        self, operation: str | None = None, *, call: int = 1, times: int | None = 1, when: FaultCondition | None = None
    ) -> Fault:
        """Do a call, commit it, and raise `DatabaseUnavailable`. See `fail` for the arguments."""
        return self._add(self._after, Fault(operation, call, times, when, _unavailable("the reply was lost")))

    def slow(
        self,
        operation: str | None = None,
        *,
        seconds: float,
        call: int = 1,
        times: int | None = None,
        when: FaultCondition | None = None,
    ) -> Fault:
        """Let a call wait for so many seconds before it is done, or until the fault is healed. See `fail`."""
        return self._add(self._before, Fault(operation, call, times, when, _waiting(seconds)))

    def hold(
        self, operation: str | None = None, *, call: int = 1, times: int | None = 1, when: FaultCondition | None = None
    ) -> Fault:
        """Let a call wait before it is done, until the fault is healed. See `fail`."""
        return self._add(self._before, Fault(operation, call, times, when, _waiting(MAX_HOLD)))

    def hold_reply(
        self, operation: str | None = None, *, call: int = 1, times: int | None = 1, when: FaultCondition | None = None
    ) -> Fault:
        """Do a call and commit it, and keep the reply back until the fault is healed. See `fail`."""
        return self._add(self._after, Fault(operation, call, times, when, _waiting(MAX_HOLD)))

    def away(self) -> Fault:
        """Let the database be unavailable until the fault is healed: ``with database.away(): …``."""
        return self._add(self._before, Fault(None, 1, None, None, _unavailable("a test made it unavailable")))

    def heal(self) -> None:
        """End all faults."""
        with self._faults_lock:
            faults = [*self._before, *self._after]
            self._before.clear()
            self._after.clear()
        for fault in faults:
            fault.heal()

    run = _with_faults(Database.run)
    run_short = _with_faults(Database.run_short)
    read = _with_faults(Database.read)

    def run_group(
        self, operation: Callable[[Connection, *Ts], T], /, *args: *Ts, durable: bool = True, waits: bool = True
    ) -> T:
        """`Database.run_group`, with the faults before and after it."""
        with self._faults_around(operation_name(operation), args, {}):
            return super().run_group(operation, *args, durable=durable, waits=waits)

    def close(self) -> None:
        """End all faults, and close all connections."""
        self.heal()
        super().close()

    def _add(self, faults: list[Fault], fault: Fault) -> Fault:
        with self._faults_lock:
            faults.append(fault)
        return fault

    @contextmanager
    def _faults_around(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
        with self._faults_lock:
            self.calls[name] += 1
        self._apply_faults(self._before, name, args, kwargs)
        yield
        self._apply_faults(self._after, name, args, kwargs)

    def _apply_faults(self, faults: list[Fault], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with self._faults_lock:
            applicable = [fault for fault in faults if fault.applies_to(name, args, kwargs)]
        for fault in applicable:
            fault.apply()


def operation_name(operation: Callable[..., object]) -> str:
    """The name by which a test knows an operation.

    >>> operation_name(partial(print, "a"))
    'print'
    """
    while isinstance(operation, partial):
        operation = operation.func
    return str(getattr(operation, "__name__", type(operation).__name__))


class TemporaryDatabase(FaultyDatabase):
    """A `FaultyDatabase` with peerd's tables, empty; closing it deletes it."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="peerd-")
        path = Path(self._folder.name) / FILE_NAME
        path.write_bytes(_migrated())
        super().__init__(f"sqlite:///{path}")
        event.listen(self.engine, "connect", _disable_sync)

    def close(self) -> None:
        """Close all connections, and delete the file."""
        super().close()
        self._folder.cleanup()


def _disable_sync(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")  # it need not survive a power cut


@cache
def _migrated() -> bytes:
    """The file of a migrated database: made once in a process, because making it takes longer than most tests."""
    with TemporaryDirectory(prefix="peerd-") as folder:
        path = Path(folder) / FILE_NAME
        with closing(Database(f"sqlite:///{path}")) as database:
            migrate(database)
            with database.engine.connect() as connection:
                connection.exec_driver_sql("COMMIT")
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.read_bytes()
