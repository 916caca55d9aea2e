"""The database of a simulated process: every call of the store waits there until the world lets it happen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from peerd.domain.errors import RowLocked
from peerd.store.connection.database import Database
from peerd.store.outcomes.complete import complete
from tests.simulation.locks import WAITED
from tests.simulation.threads import SimulatedThread, StoreCall

if TYPE_CHECKING:
    from tests.simulation.process import SimulatedProcess


class SimulatedDatabase(Database):
    def __init__(self, shared: Database, process: SimulatedProcess) -> None:
        self.url = shared.url
        self.engine = shared.engine
        self._shared = shared
        self.process = process

    def run(self, operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._call(operation, partial(self._shared.run, operation, *args, **kwargs))

    def run_autocommit(self, operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._call(operation, partial(self._each, operation, *args, **kwargs))

    def run_statement(self, operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._call(operation, partial(self._shared.run_statement, operation, *args, **kwargs))

    def run_group(self, operation: Callable[..., Any], /, *args: Any, durable: bool = True) -> Any:
        return self._call(operation, partial(self._shared.run_group, operation, *args, durable=durable))

    run_idempotent = run

    def read(self, operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._call(operation, partial(self._shared.read, operation, *args, **kwargs))

    def close(self) -> None:
        """Do nothing: all processes share the connections."""

    def _each(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        locked = self.process.world.locked_rows()
        if operation is complete and any(held.id in locked for held in args[1]):
            raise RowLocked("lock wait timeout exceeded", WAITED)
        return self._shared.run(operation, *args, **kwargs)

    def _call(self, operation: Callable[..., Any], make: Callable[[], Any]) -> Any:
        call = StoreCall(operation.__name__, make, self.process.world.now)
        return SimulatedThread.current().wait_for_answer(call)
