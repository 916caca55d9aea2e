"""A handler in a process of its own: the worker's side.

Each attempt is a fresh interpreter, which dies with the worker's main thread, and which a cancel or a time-out kills
with its whole process group. The request goes in over its standard input; answers come back over a pipe of their own,
so that what the handler prints stays the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import Any

import msgspec

from peerd.domain.outcome import Asked
from peerd.domain.task import Task
from peerd.runtime.launch import launch_command
from peerd.store.touch import Progress
from peerd.work.context import Context

CHUNK = 64 * 1024


class Request(msgspec.Struct):
    """What the process is asked to do: which handler, for which task."""

    module: str
    attribute: str
    task: Task
    node: str
    options: dict[str, Any]


class Progressed(msgspec.Struct, tag="progress"):
    """It has come so far."""

    fraction: float
    note: str | None


class Returned(msgspec.Struct, tag="returned"):
    """It returned this JSON text."""

    result: str | None


class Raised(msgspec.Struct, tag="raised"):
    """It raised an exception."""

    kinds: list[str]
    """The names of the exception's class and its bases, so that retry_on and discard_on can be matched by name."""
    text: str
    traceback: str


class Chose(msgspec.Struct, tag="chose"):
    """It asked for an outcome."""

    kind: str
    reason: str
    after: float | None


Answer = Progressed | Returned | Raised | Chose


class ProcessError(Exception):
    """An exception that a handler raised in its own process.

    Args:
        raised: what came from there.
    """

    def __init__(self, raised: Raised) -> None:
        self.raised = raised
        super().__init__(raised.text)


class ProcessDied(Exception):
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
        ProcessError: the handler raised.
        ProcessDied: its process ended without an answer.
        Asked: the handler asked for an outcome.
    """
    request = msgspec.json.encode(Request(module, attribute, ctx.task, ctx.node, dict(ctx.options)))
    readable, writable = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *launch_command([sys.executable, "-m", "peerd.work.process_main", str(writable)], limits=None),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(writable,),
            process_group=0,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except BaseException:
        os.close(readable)
        raise
    finally:
        os.close(writable)
    try:
        return await _converse(process, request, readable, ctx)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _converse(process: asyncio.subprocess.Process, request: bytes, readable: int, ctx: Context) -> str | None:
    reader = asyncio.StreamReader(limit=CHUNK)
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(readable, "rb", buffering=0)
    try:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    except BaseException:
        pipe.close()
        raise
    try:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(request)
            await process.stdin.drain()
            process.stdin.close()
        decoder = msgspec.json.Decoder(Answer)
        while True:
            try:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = decoder.decode(await reader.readexactly(size))
            except (asyncio.IncompleteReadError, msgspec.DecodeError):
                raise ProcessDied(await process.wait()) from None
            match answer:
                case Progressed(fraction, note):
                    ctx.report(Progress(fraction, note))
                case Returned(result):
                    return result
                case Raised():
                    raise ProcessError(answer)
                case Chose():
                    raise asked(answer)
    finally:
        transport.close()


def asked(answer: Chose) -> Asked:
    """The outcome that a handler asked for in its own process."""
    from peerd.domain import outcome  # noqa: PLC0415 - the four classes, by their names

    kind = getattr(outcome, answer.kind)
    if answer.kind in ("Retry", "Snooze"):
        return kind(answer.after, answer.reason)  # type: ignore[no-any-return]
    return kind(answer.reason)  # type: ignore[no-any-return]
