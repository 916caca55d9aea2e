"""A simulated process: a real process, led through its real life by an event loop in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from peerd import Context
from peerd.runtime.concurrency import PeriodicStep, PeriodicThread
from peerd.runtime.inbox import UrgentRequests
from peerd.runtime.process.control_thread import ControlMessageHandler, StopRequested
from peerd.runtime.process.life import run_until_end
from peerd.runtime.process.link import Link
from peerd.shell import ProcessShell
from tests.simulation.loop import SimulatedLoop
from tests.simulation.threads import SimulatedThread

if TYPE_CHECKING:
    from tests.simulation.node import SimulatedNode
    from tests.simulation.world import World


class SimulatedControlThread:
    """What `Link` needs of a control thread: frames to the master, the request to stop, and the hard end after it."""

    def __init__(self, process: SimulatedProcess, release_time: float) -> None:
        self.grace = 0.0
        self.lost = False
        self.replaced = False
        self.flushed = threading.Event()
        self.flushed.set()
        self._process = process
        self._release_time = release_time
        self._current_grace: float | None = None
        self._early: list[StopRequested | dict[str, object]] = []
        self._deliver: ControlMessageHandler | None = None
        self.urgent_requests = UrgentRequests(self.send)

    @property
    def stopping(self) -> bool:
        return self._current_grace is not None

    def attach(self, deliver: ControlMessageHandler) -> None:
        self._deliver = deliver
        for event in self._early:
            deliver(event)
        self._early.clear()

    def send(self, message: Mapping[str, object]) -> None:
        self._process.node.receive_frame(self._process, message)

    def log_line(self, text: str) -> None:
        self._process.world.note(f"{self._process} complains: {text}")

    def ask_to_stop(self, grace: float) -> bool:
        if self._current_grace is not None and grace >= self._current_grace:
            return False
        self._current_grace = grace
        self._process.ends_hard_at = self._process.world.now + grace + self._release_time
        self.post(StopRequested(grace))
        return True

    def end_soon(self, status: int, *, at_once: bool = False) -> None:
        """Its interpreter ends at once."""

    def post(self, event: StopRequested | dict[str, object]) -> None:
        if self._deliver is None:
            self._early.append(event)
        else:
            self._deliver(event)


class SimulatedLink(Link):
    def __init__(self, process: SimulatedProcess, identity: Mapping[str, Any]) -> None:
        super().__init__(Mock(), **identity)  # the control thread of this end is never started
        self.watch = SimulatedControlThread(process, self.release_time)
        self._control = self.watch  # type: ignore[assignment]
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def request_node_stop(self) -> None:
        self._process.node.leave()


class SimulatedProcess:
    def __init__(
        self,
        world: World,
        node: SimulatedNode,
        identity: Mapping[str, Any],
        make: Callable[[SimulatedProcess], ProcessShell],
    ) -> None:
        self.world = world
        self.node = node
        self.pid = next(world.pids)
        self.alive = True
        self.ready = False
        self.frozen_until = 0.0
        self.blocked_until = 0.0
        """Its event loop stands still until then: a handler blocks it."""
        self.unresponsive_until = 0.0
        """Until then its handlers cannot be cancelled."""
        self.ends_hard_at: float | None = None
        self.asked_to_stop = False
        self.identity: Mapping[str, Any] | None = None
        self.hindered_at = max(world.now, world.database_away_until)
        """When it last could not do what it should: not yet begun, frozen, cut off, an answer lost."""
        self.running: dict[tuple[int, int], Context] = {}
        self.threads: list[SimulatedThread] = []
        self.link = SimulatedLink(self, identity)
        self.loop = SimulatedLoop(self.monotonic, self._start_thread)
        self.shell = make(self)
        self._life = self.loop.create_task(run_until_end(self.shell, self.link))
        self._life.add_done_callback(self._ended)

    def __repr__(self) -> str:
        return f"{self.node.name}/{self.link.slot}#{self.pid}"

    @property
    def process_id(self) -> int | None:
        return None if self.identity is None else self.identity.get("process_id")

    def monotonic(self) -> float:
        return self.world.now - self.node.slept

    @property
    def is_frozen(self) -> bool:
        return self.world.now < self.frozen_until

    @property
    def has_free_executor_slot(self) -> bool:
        """Whether it seems able to run one more task of a queue with handlers."""
        may_begin = self.ready and self.node.is_ready
        is_there = self.alive and may_begin and not (self.asked_to_stop or self.is_frozen or self.node.stopping)
        is_free = len(self.running) < self.world.plan.executor_slots and self.world.now >= self.blocked_until
        return self.link.kind == "work" and is_there and is_free

    def run_until_blocked(self) -> None:
        while self.alive and not self.is_frozen and self._run_once():
            pass

    def _run_once(self) -> bool:
        moved = False
        if self.world.now >= self.blocked_until:
            self.loop.run_until_blocked()
        now = self.world.now
        for thread in [thread for thread in self.threads if thread.is_awake(now)]:
            if self.alive:
                thread.go_on()
                moved = True
        if moved:
            self.threads = [thread for thread in self.threads if not thread.dead]
        return moved

    def calls(self) -> list[SimulatedThread]:
        if not self.alive or self.is_frozen:
            return []
        return [thread for thread in self.threads if thread.call is not None]

    def next_event(self) -> float | None:
        if not self.alive:
            return None
        moments = [moment for thread in self.threads if (moment := thread.next_moment()) is not None]
        timer = self.loop.next_timer()
        if timer is not None:
            moments.append(max(timer + self.node.slept, self.blocked_until))
        if self.ends_hard_at is not None:
            moments.append(self.ends_hard_at)
        return max(min(moments), self.frozen_until) if moments else None

    def hinder(self, until: float) -> None:
        self.hindered_at = max(self.hindered_at, until)

    def freeze(self, seconds: float) -> None:
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        self.hinder(until=self.frozen_until)

    def ask_to_stop(self, grace: float) -> None:
        self.asked_to_stop = True
        self.link.watch.ask_to_stop(grace)

    def block_loop(self, seconds: float) -> None:
        self.blocked_until = max(self.blocked_until, self.world.now + seconds)
        self.unresponsive_until = max(self.unresponsive_until, self.blocked_until)

    def kill(self, cause: str) -> None:
        if not self.alive:
            return
        self.alive = False
        self.loop.halt()
        self.running.clear()
        self.world.note(f"{self} is dead: {cause}")
        self.node.on_process_end(self, cause)

    def forget(self) -> None:
        for thread in self.threads:
            thread.forget()
        self.loop.forget()

    def tick(self, step: PeriodicStep) -> SimulatedPeriodicThread:
        return SimulatedPeriodicThread(self, step)

    def begin(self, work: Callable[[], Any], ended: Callable[[Any, BaseException | None], None]) -> None:
        self.threads.append(SimulatedThread(work, ended))

    def _start_thread(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        def ended(result: Any, error: BaseException | None) -> None:
            self.loop.call_soon(_set_result, future, result, error)

        self.begin(work, ended)

    def _ended(self, life: asyncio.Task[int]) -> None:
        if self.alive and not life.cancelled():
            error = life.exception()
            self.kill(f"status {life.result()}" if error is None else f"its life failed: {error!r}")


class SimulatedPeriodicThread(PeriodicThread):
    def __init__(self, process: SimulatedProcess, step: PeriodicStep) -> None:
        self._process = process
        self._step = step
        self._is_stopping = False
        self._ended = False

    def start(self) -> None:
        self._process.begin(self._live, self._end)

    def stop(self) -> None:
        self._is_stopping = True

    def join(self, seconds: float) -> None:
        SimulatedThread.current().sleep_until(self._process.world.now + seconds, lambda: self._ended)

    def _live(self) -> None:
        while not self._is_stopping:
            pause = self._step(self._process.monotonic())
            SimulatedThread.current().sleep_until(self._process.world.now + pause, lambda: self._is_stopping)

    def _end(self, result: Any, error: BaseException | None) -> None:
        self._ended = True
        assert error is None, error


def _set_result(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
