"""A handler in a process of its own: the process's side. ``python -m peerd.work.attempts.handler_process_main FD``."""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module

import msgspec

from peerd.domain.outcome import OutcomeSignal
from peerd.runtime.process.uncaught_exceptions import describe_exception, exception_text, format_traceback
from peerd.store.outcomes.touch import TaskProgress
from peerd.work.arguments import encode_result
from peerd.work.attempts.handler_process import (
    HandlerMessage,
    HandlerProgress,
    HandlerRaised,
    HandlerRequest,
    HandlerReturned,
    HandlerSignaled,
)
from peerd.work.context import Context
from peerd.work.handlers import Handler

_send_lock = threading.Lock()


def main() -> None:
    """Read the request, run the handler, and send its result."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=HandlerRequest)
    own = os.getpid()
    answer = _run(request, descriptor)
    if os.getpid() == own:  # a child that the handler forked, and that has returned from it, sends nothing
        _send(descriptor, answer)


def _run(request: HandlerRequest, descriptor: int) -> HandlerMessage:
    def report(progress: TaskProgress) -> None:
        _send(descriptor, HandlerProgress(progress.fraction, progress.note))

    ctx = Context(request.task, node=request.node, options=request.options, report=report)
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


def _signaled_message(outcome: OutcomeSignal) -> HandlerSignaled:
    return HandlerSignaled(type(outcome).__name__, exception_text(outcome.reason), getattr(outcome, "after", None))


def _send(descriptor: int, answer: HandlerMessage) -> None:
    frame = msgspec.json.encode(answer)
    data = memoryview(len(frame).to_bytes(4, "big") + frame)
    with _send_lock:  # several threads of the handler may report progress
        while data:
            data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
