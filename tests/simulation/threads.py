"""Threads that run only when the simulation runs them: each is a greenlet that stops at every call of the database."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from greenlet import GreenletExit, getcurrent, greenlet


class StoreCall(NamedTuple):
    name: str
    make: Callable[[], Any]
    called_at: float


class SimulatedThread(greenlet):
    def __init__(self, work: Callable[[], Any], ended: Callable[[Any, BaseException | None], None]) -> None:
        super().__init__(self._live)
        self.call: StoreCall | None = None
        self.wakes_at: float | None = None
        self._answer: tuple[Any, BaseException | None] | None = None
        self._answered_at = 0.0
        self._woken_early: Callable[[], bool] = lambda: False
        self._work = work
        self._ended = ended
        self._begun = False

    @staticmethod
    def current() -> SimulatedThread:
        running = getcurrent()
        assert isinstance(running, SimulatedThread), "the event loop itself called the database: it would block"
        return running

    def wait_for_answer(self, call: StoreCall) -> Any:
        self.call = call
        return self._pause()

    def sleep_until(self, moment: float, woken_early: Callable[[], bool]) -> None:
        self.wakes_at = moment
        self._woken_early = woken_early
        if not self._woken_early():
            self._pause()
        self.wakes_at = None

    def _pause(self) -> Any:
        assert self.parent is not None
        return self.parent.switch()

    def is_awake(self, now: float) -> bool:
        if self.dead or self.call is not None:
            return False
        if not self._begun:
            return True
        if self._answer is not None:
            return self._answered_at <= now
        return self.wakes_at is not None and (self.wakes_at <= now or self._woken_early())

    def next_moment(self) -> float | None:
        if self.call is not None:
            return None
        return self.wakes_at if self._answer is None else self._answered_at

    def answer(self, value: Any = None, error: BaseException | None = None, *, at: float = 0.0) -> None:
        """Set the result of its call, which it receives when it continues, not before a moment."""
        self.call = None
        self._answer = (value, error)
        self._answered_at = at

    def go_on(self) -> None:
        self.parent = getcurrent()
        if not self._begun:
            self._begun = True
            self.switch()
            return
        (value, error), self._answer = self._answer or (None, None), None
        if error is not None:
            self.throw(error)
        else:
            self.switch(value)

    def forget(self) -> None:
        if self._begun and not self.dead:
            self.throw(GreenletExit)

    def _live(self) -> None:
        try:
            result = self._work()
        except GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001 - whoever waits shall get it
            self._ended(None, error)
        else:
            self._ended(result, None)


class SimulatedLock:
    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        if self._held:
            SimulatedThread.current().sleep_until(inf, lambda: not self._held)
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False
