"""A database in which things go wrong when a test says so."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy.engine import URL, Connection

from peerd.store.connection.database import Database
from peerd.store.statements.autocommit import AutocommitConnection
from peerd.testing.fault import Fault, FaultCondition, away, raise_effect, wait_effect

P = ParamSpec("P")
T = TypeVar("T")

MAX_HOLD: Final = 60.0
"""Seconds; a test that forgot to heal what it holds ends nevertheless."""


class FaultyDatabase(Database):
    """A `Database` that can be told what goes wrong. Safe to use from several threads.

    An operation is named as the function that does it: ``claim``, ``complete``, ``record_outcome``, ``touch``,
    ``report_progress``; that of a `Client` as its method: ``enqueue``, ``cancel``. Without a name, any call is meant.
    ``call`` counts the calls of it from now on: 1 is the next. ``times`` is for how many it goes wrong; None is until
    the fault is healed. ``when``, asked with the operation's arguments, says which calls count at all; it must not ask
    the database.

    Args:
        url: ``sqlite:///file``, ``mysql://…`` or ``postgresql://…``.
        pool_size: connections that are kept.

    >>> database = FaultyDatabase("sqlite:////tmp/peerd-example.sqlite")
    >>> def ask(connection: Connection) -> int:
    ...     return connection.exec_driver_sql("select 1").scalar_one()
    >>> _ = database.fail("ask", call=2)
    >>> database.read(ask)
    1
    >>> database.read(ask)
    Traceback (most recent call last):
    peerd.domain.errors.DatabaseUnavailable: the database does not answer: a test made call 2 of ask fail
    >>> database.read(ask), database.calls["ask"]
    (1, 3)
    >>> database.close()
    """

    def __init__(self, url: str | URL, *, pool_size: int = 10) -> None:
        super().__init__(url, pool_size=pool_size)
        self.calls: Counter[str] = Counter()
        """How often each operation was asked for, whatever became of it."""
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
            error: what it raises, or what makes that; without it, that the database is away.
            when: which calls count.
        """
        text = f"a test made call {call} of {operation or 'any operation'} fail"
        effect = raise_effect(away(text) if error is None else error)
        return self._add(self._before, operation, call, times, when, effect)

    def lose_reply(
        self, operation: str | None = None, *, call: int = 1, times: int | None = 1, when: FaultCondition | None = None
    ) -> Fault:
        """Do a call, commit it, and say that the database is away. See `fail` for the arguments."""
        return self._add(self._after, operation, call, times, when, raise_effect(away("the reply was lost")))

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
        return self._add(self._before, operation, call, times, when, wait_effect(seconds))

    def hold(
        self, operation: str | None = None, *, call: int = 1, times: int | None = 1, when: FaultCondition | None = None
    ) -> Fault:
        """Let a call wait before it is done, until the fault is healed. See `fail`."""
        return self._add(self._before, operation, call, times, when, wait_effect(MAX_HOLD))

    def hold_reply(
        self, operation: str | None = None, *, call: int = 1, times: int | None = 1, when: FaultCondition | None = None
    ) -> Fault:
        """Do a call and commit it, and keep the reply back until the fault is healed. See `fail`."""
        return self._add(self._after, operation, call, times, when, wait_effect(MAX_HOLD))

    def away(self) -> Fault:
        """Let the database be away until the fault is healed: ``with database.away(): …``."""
        return self._add(self._before, None, 1, None, None, raise_effect(away("nobody answers")))

    def heal(self) -> None:
        """End all that goes wrong."""
        with self._faults_lock:
            faults = [*self._before, *self._after]
            self._before.clear()
            self._after.clear()
        for fault in faults:
            fault.heal()

    def run(self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`Database.run`, with what goes wrong before and after it."""
        with self._faults_around(operation_name(operation), args, kwargs):
            return super().run(operation, *args, **kwargs)

    def run_autocommit(
        self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`Database.run_autocommit`, with what goes wrong before and after it."""
        with self._faults_around(operation_name(operation), args, kwargs):
            return super().run_autocommit(operation, *args, **kwargs)

    def run_statement(
        self, operation: Callable[Concatenate[AutocommitConnection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`Database.run_statement`, with what goes wrong before and after it."""
        with self._faults_around(operation_name(operation), args, kwargs):
            return super().run_statement(operation, *args, **kwargs)

    def run_idempotent(
        self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`Database.run_idempotent`, with what goes wrong before and after it."""
        if self.name == "sqlite":
            return super().run_idempotent(operation, *args, **kwargs)  # which is `run`
        with self._faults_around(operation_name(operation), args, kwargs):
            return super().run_idempotent(operation, *args, **kwargs)

    def read(self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """`Database.read`, with what goes wrong before and after it."""
        with self._faults_around(operation_name(operation), args, kwargs):
            return super().read(operation, *args, **kwargs)

    def close(self) -> None:
        """End all that goes wrong, and close all connections."""
        self.heal()
        super().close()

    @contextmanager
    def _faults_around(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
        self._apply_faults(self._before, name, args, kwargs, counts=True)
        yield
        self._apply_faults(self._after, name, args, kwargs, counts=False)

    def _add(
        self,
        faults: list[Fault],
        operation: str | None,
        call: int,
        times: int | None,
        when: FaultCondition | None,
        effect: Callable[[Fault], None],
    ) -> Fault:
        if call < 1 or (times is not None and times < 1):
            raise ValueError("call and times are counted from 1")
        fault = Fault(operation, call, times, when, effect)
        with self._faults_lock:
            faults.append(fault)
        return fault

    def _apply_faults(
        self, faults: list[Fault], name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, counts: bool
    ) -> None:
        with self._faults_lock:
            if counts:
                self.calls[name] += 1
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
