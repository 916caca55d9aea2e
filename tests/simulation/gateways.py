"""What a simulated gateway process has instead of a thread that commits, listening sockets, and rings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from peerd.domain.ring import Ring
from peerd.gateway.batches import Batch, GroupCommitter
from peerd.gateway.operations import Holder
from peerd.gateway.server import GatewayServer
from tests.simulation.database import SimulatedDatabase


class SimulatedGroupCommitter(GroupCommitter):
    def __init__(
        self, database: SimulatedDatabase, holder: Holder, on_done: Callable[[Batch, Sequence[Sequence[Any]]], None]
    ) -> None:
        super().__init__(database, holder, on_done)
        self._process = database.process

    def start(self) -> None:
        """Do nothing: each batch has a thread of its own."""

    def submit(self, batch: Batch) -> None:
        self._process.begin(partial(self._execute, batch), partial(self._executed, batch))

    def close(self) -> None:
        """Do nothing: the engine has waited for its last batch."""

    def _executed(self, batch: Batch, results: Any, error: BaseException | None) -> None:
        assert error is None, error
        self._process.loop.call_soon(self._on_done, batch, results)


class SimulatedGatewayServer(GatewayServer):
    is_accepting = False

    def start(self, sockets: Sequence[Any]) -> None:
        self.is_accepting = True

    def stop_accepting(self, *, close_listeners: bool) -> None:
        self.is_accepting = False


class SimulatedNotifier:
    """A notifier whose rings are all lost: what follows must not need them."""

    def __init__(self, *_: object) -> None: ...
    def ring(self, *rings: Ring) -> None: ...
    def close(self) -> None: ...
