"""An event loop in virtual time: `run_until_blocked` runs what is ready and due; it never waits."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from heapq import heappop
from typing import Any

StartThread = Callable[[Callable[[], Any], "asyncio.Future[Any]"], None]


class _NothingToSelect:
    def select(self, timeout: float | None) -> list[Any]:
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    def __init__(self, clock: Callable[[], float], start_thread: StartThread) -> None:
        super().__init__()
        self._selector = _NothingToSelect()
        self._time = clock
        self._start_thread = start_thread
        self._halted = False

    def time(self) -> float:
        return self._time()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        ended = self.create_future()
        self._start_thread(partial(func, *args), ended)
        return ended

    def run_until_blocked(self) -> None:
        """Run until nothing is ready and nothing is due."""
        if not (self._ready or self._is_due()):  # type: ignore[attr-defined]
            return
        events._set_running_loop(self)
        try:
            while not self._halted and (self._ready or self._is_due()):  # type: ignore[attr-defined]
                self._run_once()  # type: ignore[attr-defined]
        finally:
            events._set_running_loop(None)

    def next_timer(self) -> float | None:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            heappop(timers)._scheduled = False  # type: ignore[attr-defined]
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
        return timers[0].when() if timers else None

    def halt(self) -> None:
        self._halted = True

    def forget(self) -> None:
        events._set_running_loop(self)
        try:
            for task in sorted(asyncio.all_tasks(self), key=lambda one: one.get_name()):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine = task.get_coro()
                assert coroutine is not None
                with suppress(BaseException):  # errors of its clean-up are ignored
                    coroutine.close()
        finally:
            events._set_running_loop(None)
        self.close()

    def _is_due(self) -> bool:
        due = self.next_timer()
        return due is not None and due <= self.time()

    def _process_events(self, event_list: Any) -> None:
        """No sockets, no events."""

    def _write_to_self(self) -> None:
        """Do nothing: no thread sleeps in this loop."""
