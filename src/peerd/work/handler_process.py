"""A handler in a process of its own: the worker's side, and the side of the process.

Each attempt is a fresh interpreter, ``python -m peerd.work.handler_process FD``, which dies with the worker's main
thread, and which a cancel or a time-out kills with its whole process group. The request is its standard input. Its
messages come over a separate pipe, because its standard output is the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, Final

import msgspec

from peerd.domain import outcome
from peerd.domain.outcome import OutcomeSignal
from peerd.domain.task import Task
from peerd.runtime import os_processes
from peerd.runtime.concurrency import wait_despite_cancellation
from peerd.runtime.observability.log_file import protect_output
from peerd.runtime.os_processes import launch_command
from peerd.runtime.process.uncaught_exceptions import describe_exception, exception_text, format_traceback
from peerd.store.outcomes import TaskProgress
from peerd.work.arguments import encode_result
from peerd.work.attempt_log import AttemptLog, KeptLine, LineCollector, current_attempt
from peerd.work.context import Context
from peerd.work.handlers import Handler
from peerd.work.output_capture import STREAM_LEVELS, capture_output
from peerd.work.remote_stacks import RemoteStacks, open_stack_pipe, write_stacks_on_signal

SEND_EVERY: Final = 0.2
"""Seconds between two messages with lines; what a handler logs in this time before it is killed is lost."""
LINES_OF_A_MESSAGE: Final = 200


class LineSender:
    """Sends the lines of the handler to its worker, from a thread, at most every `SEND_EVERY`.

    A handler that logs faster than the lines can be kept is not slowed down by the pipe: what is beyond the limits of
    an attempt is dropped here; the numbers of the lines that `send` gets say how many.
    """

    def __init__(self, task: Task, least_level: str, send: Callable[[list[KeptLine]], None]) -> None:
        self._send = send
        self._signals: SimpleQueue[bool] = SimpleQueue()  # reentrant, as its put may be called by a signal handler
        self._collector = LineCollector(least_level, lambda _: self._signals.put(True))
        self.log = AttemptLog(self._collector, task, time.monotonic())
        current_attempt.set(self.log)
        self._thread = threading.Thread(target=self._run, name="peerd-log-lines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send what is left, and end."""
        self.log.end(STREAM_LEVELS)
        self._signals.put(False)
        self._thread.join()

    def _run(self) -> None:
        is_running = True
        while is_running:
            is_running = self._signals.get()
            if is_running:
                with suppress(Empty):
                    is_running = self._signals.get(timeout=SEND_EVERY)
            while taken := self._collector.take_of_an_attempt(LINES_OF_A_MESSAGE):
                with suppress(BrokenPipeError):  # the worker is gone, and this process will be
                    self._send(taken.lines)


# ---------------------------------------------------------------- handler process


_send_lock = threading.Lock()
CHUNK: Final = 64 * 1024
"""Bytes; as many as a pipe of Linux holds."""


class HandlerRequest(msgspec.Struct):
    """Which handler to run, for which task; `log_level` is the least level of its lines that are kept, if any are."""

    module: str
    attribute: str
    task: Task
    node: str
    options: dict[str, Any]
    log_level: str | None = None
    slot: str = ""
    trace_context: str | None = None  # of the span of the attempt; None: there is none


class HandlerProgress(msgspec.Struct, tag="progress"):
    """The handler reported progress."""

    fraction: float
    note: str | None


class HandlerLines(msgspec.Struct, tag="lines"):
    """The handler logged lines."""

    lines: list[KeptLine]


class HandlerReturned(msgspec.Struct, tag="returned"):
    """The handler returned this JSON text."""

    result: str | None


class HandlerRaised(msgspec.Struct, tag="raised"):
    """The handler raised an exception. `kinds` names its class and bases, to match retry_on and discard_on by name."""

    kinds: list[str]
    text: str
    traceback: str


class HandlerSignaled(msgspec.Struct, tag="chose"):
    """The handler returned or raised Retry, Snooze, Cancel or Dead."""

    kind: str
    reason: str
    after: float | None


HandlerMessage = HandlerProgress | HandlerLines | HandlerReturned | HandlerRaised | HandlerSignaled


class HandlerProcessError(Exception):
    """An exception that a handler raised in its own process; `raised` is the message about it."""

    def __init__(self, raised: HandlerRaised) -> None:
        self.raised = raised
        super().__init__(raised.text)


class HandlerProcessDied(Exception):
    """A handler's own process ended without a result."""

    def __init__(self, status: int) -> None:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        super().__init__(f"the handler's process {how} before it answered")


async def call_in_process(module: str, attribute: str, ctx: Context) -> HandlerReturned:
    """Run the handler ``module.attribute`` in a process of its own, and return its result.

    Raises:
        HandlerProcessError: the handler raised an exception.
        HandlerProcessDied: its process ended without a result.
        OutcomeSignal: the handler returned or raised one.
    """
    level = None if ctx.attempt_log is None else ctx.attempt_log.least_level
    wanted = HandlerRequest(module, attribute, ctx.task, ctx.node, dict(ctx.options), level, *ctx.traced_slot())
    request = msgspec.json.encode(wanted)
    with ExitStack() as ours, ExitStack() as of_child:
        readable, writable = os.pipe()
        ours.callback(os.close, readable)
        of_child.callback(os.close, writable)
        stacks, stack_end = open_stack_pipe()
        ours.callback(os.close, stacks)
        of_child.callback(os.close, stack_end)
        process = HandlerProcess(popen := _start(request, writable, stack_end), readable)
        ours.pop_all()
    remote = RemoteStacks(popen.pid, stacks)
    try:
        with remote.registered():
            return await _receive_messages(process, ctx)
    except BaseException:
        process.kill_descendants()
        raise
    finally:
        await process.end()


def _start(request: bytes, writable: int, stack_end: int) -> subprocess.Popen[bytes]:
    """Start the interpreter. Its standard input is a file in memory with the request, so nothing has to feed a pipe."""
    program = [sys.executable, "-P", "-m", "peerd.work.handler_process", str(writable), str(stack_end)]
    with os.fdopen(os.memfd_create("peerd-request"), "w+b") as standard_input:
        standard_input.write(request)
        standard_input.seek(0)
        return subprocess.Popen(
            launch_command(program, limits=None),
            stdin=standard_input,
            pass_fds=(writable, stack_end),
            process_group=0,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )


class HandlerProcess:
    """A handler's process: the messages it sends, and its end. `end` closes `readable`, the pipe of the messages.

    A pidfd reports its end. The end of the pipe does not: children that it has forked keep the pipe open while they
    live. The process is reaped after its group was killed, and not before, so that the group's number is still its own.
    """

    def __init__(self, process: subprocess.Popen[bytes], readable: int) -> None:
        self.messages = asyncio.StreamReader()
        """Ends with the pipe or with the process, whichever is first."""
        self._process = process
        self._readable = readable
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        try:
            self._pidfd = os.pidfd_open(process.pid)
        except OSError:  # of too many descriptors: nobody would notice its end
            self._kill_group()
            process.wait()
            raise
        os.set_blocking(readable, False)
        self._loop.add_reader(readable, self._read)
        self._loop.add_reader(self._pidfd, self._on_exit)

    async def wait(self) -> int:
        """Wait for its end; its exit status, -N for a signal."""
        await asyncio.wait([self._ended])
        return self._process.wait()

    def kill_descendants(self) -> None:
        """Kill its descendants in other groups and sessions, too, which can be found only while it lives."""
        if not self._ended.done():
            os_processes.kill_processes(os_processes.descendants(self._process.pid))

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
                self.messages.feed_data(received)
            else:
                self._loop.remove_reader(self._readable)
                self.messages.feed_eof()

    def _on_exit(self) -> None:
        """Read its last messages, which are in the pipe still: it holds no more than a chunk."""
        self._loop.remove_reader(self._pidfd)
        if self._loop.remove_reader(self._readable):
            self._read()
            self.messages.feed_eof()
        self._kill_group()
        self._ended.set_result(None)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


async def _receive_messages(process: HandlerProcess, ctx: Context) -> HandlerReturned:
    decoder = msgspec.json.Decoder(HandlerMessage)
    while True:
        try:
            size = int.from_bytes(await process.messages.readexactly(4), "big")
            answer = decoder.decode(await process.messages.readexactly(size))
        except (asyncio.IncompleteReadError, msgspec.DecodeError):
            raise HandlerProcessDied(await process.wait()) from None
        match answer:
            case HandlerProgress(fraction, note):
                ctx.report(TaskProgress(fraction, note))
            case HandlerLines(lines) if ctx.attempt_log is not None:
                for line in lines:
                    ctx.attempt_log.add_received(line)
            case HandlerReturned():
                return answer
            case HandlerRaised():
                raise HandlerProcessError(answer)
            case HandlerSignaled():
                raise _decode_signal(answer)


def _decode_signal(signaled: HandlerSignaled) -> OutcomeSignal:
    kind: Any = getattr(outcome, signaled.kind)
    after = (signaled.after,) if issubclass(kind, outcome.Retry | outcome.Snooze) else ()
    signal: OutcomeSignal = kind(*after, signaled.reason)
    return signal


def main() -> None:
    """Read the request, run the handler, and send its result."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    write_stacks_on_signal(int(sys.argv[2]))
    protect_output()
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=HandlerRequest)
    own = os.getpid()
    sender = None
    if request.log_level is not None:
        sender = LineSender(request.task, request.log_level, lambda lines: _send(descriptor, HandlerLines(lines)))
        capture_output("debug")
    run = _run if request.trace_context is None else _run_traced
    answer = run(request, descriptor, sender)
    if os.getpid() == own:  # a child that the handler forked, and that has returned from it, sends nothing
        if sender is not None:
            sender.stop()
        _send(descriptor, answer)


def _run_traced(request: HandlerRequest, descriptor: int, sender: LineSender | None) -> HandlerMessage:
    """Run the handler below the span of the attempt, which the worker's process has; spans of the user's code follow.

    They are sent before the answer: the worker kills this process once it has that.
    """
    from peerd.runtime.span_export import set_up_tracing  # noqa: PLC0415 - of an extra
    from peerd.runtime.spans import current_remote  # noqa: PLC0415

    flush = set_up_tracing(request.node, request.slot)
    with current_remote(request.trace_context):
        answer = _run(request, descriptor, sender)
    flush()
    return answer


def _run(request: HandlerRequest, descriptor: int, sender: LineSender | None) -> HandlerMessage:
    def report(progress: TaskProgress) -> None:
        _send(descriptor, HandlerProgress(progress.fraction, progress.note))

    ctx = Context(request.task, node=request.node, options=request.options, report=report)
    ctx.attempt_log = None if sender is None else sender.log
    try:
        handler = getattr(import_module(request.module), request.attribute)
        assert isinstance(handler, Handler), f"{request.module}:{request.attribute} is no handler"
        values = handler.arguments.decode(request.task.body)
        result = handler.function(ctx, **values) if handler.arguments.takes_context else handler.function(**values)
        if isinstance(result, OutcomeSignal):
            return _signaled_message(result)
        return HandlerReturned(encode_result(result))
    except OutcomeSignal as error:
        return _signaled_message(error)
    except BaseException as error:  # noqa: BLE001 - the worker decides what follows
        kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
        return HandlerRaised(kinds, describe_exception(error), format_traceback(error))


def _signaled_message(signaled: OutcomeSignal) -> HandlerSignaled:
    return HandlerSignaled(type(signaled).__name__, exception_text(signaled.reason), getattr(signaled, "after", None))


def _send(descriptor: int, answer: HandlerMessage) -> None:
    frame = msgspec.json.encode(answer)
    data = memoryview(len(frame).to_bytes(4, "big") + frame)
    with _send_lock:  # several threads of the handler may report progress
        while data:
            data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
