"""A handler in a process of its own: the process's side. ``python -m peerd.work.attempts.handler_process_main FD``."""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module

import msgspec

from peerd.domain.outcome import Asked
from peerd.runtime.process.uncaught_exceptions import text_of, traceback_of, words
from peerd.store.outcomes.touch import Progress
from peerd.work.arguments import encode_result
from peerd.work.attempts.handler_process import Answer, Chose, Progressed, Raised, Request, Returned
from peerd.work.context import Context
from peerd.work.handlers import Handler

_sending = threading.Lock()


def main() -> None:
    """Read the request, run the handler, answer."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    own = os.getpid()
    answer = _run(request, descriptor)
    if os.getpid() == own:  # a child that was forked in the handler, and has come back out of it, answers nothing
        _send(descriptor, answer)


def _run(request: Request, descriptor: int) -> Answer:
    def report(progress: Progress) -> None:
        _send(descriptor, Progressed(progress.fraction, progress.note))

    ctx = Context(request.task, node=request.node, options=request.options, report=report)
    try:
        handler = getattr(import_module(request.module), request.attribute)
        assert isinstance(handler, Handler), f"{request.module}:{request.attribute} is no handler"
        values = handler.arguments.decode(request.task.body)
        result = handler.function(ctx, **values) if handler.arguments.wants_context else handler.function(**values)
        if isinstance(result, Asked):
            return _chose(result)
        return Returned(encode_result(result))
    except Asked as error:
        return _chose(error)
    except BaseException as error:  # noqa: BLE001 - the worker judges it
        return _raised(error)


def _chose(outcome: Asked) -> Chose:
    return Chose(type(outcome).__name__, text_of(outcome.reason), getattr(outcome, "after", None))


def _raised(error: BaseException) -> Raised:
    kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    return Raised(kinds, words(error), traceback_of(error))


def _send(descriptor: int, answer: Answer) -> None:
    frame = msgspec.json.encode(answer)
    data = memoryview(len(frame).to_bytes(4, "big") + frame)
    with _sending:  # a handler's threads may all report progress
        while data:
            data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
