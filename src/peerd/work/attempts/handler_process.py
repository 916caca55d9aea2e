"""A handler in a process of its own: the worker's side.

Each attempt is a fresh interpreter, which dies with the worker's main thread, and which a cancel or a time-out kills
with its whole process group. The request is its standard input; answers come back over a pipe of their own, so that
what the handler prints stays the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from typing import Any, Final

import msgspec

from peerd.domain.outcome import OutcomeSignal
from peerd.domain.task import Task
from peerd.runtime.concurrency.threads import wait_despite_cancellation
from peerd.runtime.launch import launch_command
from peerd.runtime.process import process_tree
from peerd.store.outcomes.touch import TaskProgress
from peerd.work.context import Context

CHUNK: Final = 64 * 1024
"""Bytes; as many as a pipe of Linux holds."""


class HandlerRequest(msgspec.Struct):
    """What the process is asked to do: which handler, for which task."""

    module: str
    attribute: str
    task: Task
    node: str
    options: dict[str, Any]


class HandlerProgress(msgspec.Struct, tag="progress"):
    """It has come so far."""

    fraction: float
    note: str | None


class HandlerReturned(msgspec.Struct, tag="returned"):
    """It returned this JSON text."""

    result: str | None


class HandlerRaised(msgspec.Struct, tag="raised"):
    """It raised an exception."""

    kinds: list[str]
    """The names of the exception's class and its bases, so that retry_on and discard_on can be matched by name."""
    text: str
    traceback: str


class HandlerSignaled(msgspec.Struct, tag="chose"):
    """It asked for an outcome."""

    kind: str
    reason: str
    after: float | None


HandlerMessage = HandlerProgress | HandlerReturned | HandlerRaised | HandlerSignaled


class HandlerProcessError(Exception):
    """An exception that a handler raised in its own process.

    Args:
        raised: what came from there.
    """

    def __init__(self, raised: HandlerRaised) -> None:
        self.raised = raised
        super().__init__(raised.text)


class HandlerProcessDied(Exception):
    """A handler's own process ended without an answer."""

    def __init__(self, status: int) -> None:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        super().__init__(f"the handler's process {how} before it answered")


async def call_in_process(module: str, attribute: str, ctx: Context) -> str | None:
    """Run a handler in a process of its own.

    Args:
        module: where the handler is declared.
        attribute: its name there.
        ctx: its task; progress goes there.

    Returns:
        the result as JSON text.

    Raises:
        HandlerProcessError: the handler raised.
        HandlerProcessDied: its process ended without an answer.
        Asked: the handler asked for an outcome.
    """
    request = msgspec.json.encode(HandlerRequest(module, attribute, ctx.task, ctx.node, dict(ctx.options)))
    readable, writable = os.pipe()
    try:
        process = HandlerProcess(_start(request, writable), readable)
    except BaseException:
        os.close(readable)
        raise
    finally:
        os.close(writable)
    try:
        return await _receive_messages(process, ctx)
    except BaseException:
        process.kill_descendants()
        raise
    finally:
        await process.end()


def _start(request: bytes, writable: int) -> subprocess.Popen[bytes]:
    """Start the interpreter; the request is its standard input as a whole, so nobody has to feed it."""
    with os.fdopen(os.memfd_create("peerd-request"), "w+b") as standard_input:
        standard_input.write(request)
        standard_input.seek(0)
        return subprocess.Popen(
            launch_command(
                [sys.executable, "-P", "-m", "peerd.work.attempts.handler_process_main", str(writable)], limits=None
            ),
            stdin=standard_input,
            pass_fds=(writable,),
            process_group=0,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )


class HandlerProcess:
    """A handler's process as its worker sees it: what it says, and when it has ended.

    Its end is told by a pidfd. The end of the pipe does not tell it: children that it has forked hold the pipe open for
    as long as they live. It is reaped after its group was killed, and not before, so the group's number is its own.

    Args:
        process: just started.
        readable: the end of the pipe on which it answers; closed by `end`.
    """

    def __init__(self, process: subprocess.Popen[bytes], readable: int) -> None:
        self.answers = asyncio.StreamReader()
        """All that it says; its end is the end of the pipe or of the process, whichever comes first."""
        self._process = process
        self._readable = readable
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = os.pidfd_open(process.pid)
        os.set_blocking(readable, False)
        self._loop.add_reader(readable, self._read)
        self._loop.add_reader(self._pidfd, self._on_exit)

    async def status(self) -> int:
        """Wait until it has ended; its exit status, -N for a signal."""
        await asyncio.wait([self._ended])
        return self._process.wait()

    def kill_descendants(self) -> None:
        """Kill what descends from it in groups and sessions of its own too: as long as it lives, they can be found."""
        if not self._ended.done():
            process_tree.kill_processes(process_tree.descendants(self._process.pid))

    async def end(self) -> None:
        """Kill it with its process group, and wait until it has ended, even if the waiting is cancelled."""
        if not self._ended.done():
            self._kill_group()
        try:
            await wait_despite_cancellation(self._ended)
        finally:
            self._process.wait()
            self._loop.remove_reader(self._readable)
            os.close(self._readable)
            os.close(self._pidfd)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if received := os.read(self._readable, CHUNK):
                self.answers.feed_data(received)
            else:
                self._loop.remove_reader(self._readable)
                self.answers.feed_eof()

    def _on_exit(self) -> None:
        """What it has said last is in the pipe still, which holds no more than a chunk."""
        self._loop.remove_reader(self._pidfd)
        if self._loop.remove_reader(self._readable):
            self._read()
            self.answers.feed_eof()
        self._kill_group()
        self._ended.set_result(None)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


async def _receive_messages(process: HandlerProcess, ctx: Context) -> str | None:
    decoder = msgspec.json.Decoder(HandlerMessage)
    while True:
        try:
            size = int.from_bytes(await process.answers.readexactly(4), "big")
            answer = decoder.decode(await process.answers.readexactly(size))
        except (asyncio.IncompleteReadError, msgspec.DecodeError):
            raise HandlerProcessDied(await process.status()) from None
        match answer:
            case HandlerProgress(fraction, note):
                ctx.report(TaskProgress(fraction, note))
            case HandlerReturned(result):
                return result
            case HandlerRaised():
                raise HandlerProcessError(answer)
            case HandlerSignaled():
                raise decode_signal(answer)


def decode_signal(answer: HandlerSignaled) -> OutcomeSignal:
    """The outcome that a handler asked for in its own process."""
    from peerd.domain import outcome  # noqa: PLC0415 - the four classes, by their names

    kind = getattr(outcome, answer.kind)
    if answer.kind in ("Retry", "Snooze"):
        return kind(answer.after, answer.reason)  # type: ignore[no-any-return]
    return kind(answer.reason)  # type: ignore[no-any-return]
