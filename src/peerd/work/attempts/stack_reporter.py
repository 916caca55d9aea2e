"""Answers the agent's request for the stack of a task that this process runs, also while the event loop is blocked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from peerd.domain.task_stack import CallStack, StackAnswer, bounded
from peerd.runtime.concurrency import thread_started_by
from peerd.runtime.observability.call_stacks import is_idle_loop, stack_of_thread, stacks_of_task
from peerd.work.attempts.active_attempt import ActiveAttempt
from peerd.work.attempts.executor_slots import ExecutorSlots
from peerd.work.attempts.remote_stacks import remote_stacks_of


class StackReporter:
    """Reads the stacks of the attempts of a process. Made on the thread of its event loop, used from others.

    Args:
        slots: in which the attempts run.
        slot: of the process.
        pid: of the process.
    """

    def __init__(self, slots: ExecutorSlots, slot: str, pid: int) -> None:
        self._slots = slots
        self._slot = slot
        self._pid = pid
        self._loop_thread = threading.get_ident()

    def answer(self, data: Any) -> object:
        """The stack of the task of a request, as JSON.

        Raises:
            LookupError: it does not run here, or its own process does not answer.
        """
        task_id = data["task"]
        attempt = self._slots.find_running(task_id)
        if attempt is None or attempt.asyncio_task is None:
            raise LookupError(f"task {task_id} does not run in {self._slot} any more, or waits there for a free slot")
        remote = remote_stacks_of(attempt.asyncio_task)
        calls = self._calls_here(attempt) if remote is None else remote.read()
        kept, is_cut = bounded(calls)
        found = StackAnswer(
            pid=self._pid if remote is None else remote.pid,
            slot=self._slot,
            since=attempt.task.worker_started_at,
            calls=kept,
            is_cut=is_cut,
        )
        return msgspec.to_builtins(found)

    def _calls_here(self, attempt: ActiveAttempt) -> Iterator[CallStack]:
        """Of a plain function its thread; of a coroutine its awaits, then the event loop if that is busy."""
        task = attempt.asyncio_task
        assert task is not None
        thread = thread_started_by(task)
        stack = None if thread is None else stack_of_thread("thread", thread.ident)
        if stack is not None:
            yield stack
            return
        yield from (call for call in stacks_of_task(task, "coroutine") if call.frames)
        if not is_idle_loop(self._loop_thread) and (busy := stack_of_thread("event loop", self._loop_thread)):
            yield busy
