from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from peerd import Context, Queue
from peerd.domain.log_line import LINE_LIMIT
from peerd.runtime.observability.events import EventBus
from peerd.runtime.observability.log_output import configure_logging
from peerd.store.tasks.log_lines import LoggedLine
from peerd.testing import make_task
from peerd.work.attempt_execution import AttemptCallbacks, Execution
from peerd.work.attempt_log import FIRST_BYTES, LATEST_BYTES, AttemptLog, KeptLine, KeptLines, LineCollector
from peerd.work.attempt_outcome import TimeLimits
from peerd.work.output_capture import capture_output
from peerd.work.task_worker import QueueWorker
from tests.unit.work import process_handlers

app = logging.getLogger("app")


class Captured:
    """A process that captures: its own outputs are texts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines = LineCollector("debug")
        self.out, self.err = io.StringIO(), io.StringIO()
        self._monkeypatch = monkeypatch
        self._is_installed = False

    def install(self) -> None:
        """Within a test: pytest replaces the streams after fixtures were made."""
        if not self._is_installed:
            self._is_installed = True
            self._monkeypatch.setattr(sys, "stdout", self.out)
            self._monkeypatch.setattr(sys, "stderr", self.err)
            configure_logging("info", "console")
            self._monkeypatch.setattr(logging.Logger, "callHandlers", logging.Logger.callHandlers)
            capture_output("info")

    async def run(self, queue: Queue, name: str, body: str = "{}", task_id: int = 1) -> list[LoggedLine]:
        self.install()
        task = make_task(id=task_id, queue=queue.name, name=name, body=body)
        ctx = Context(task, node="n", report=lambda _: None)
        ctx.attempt_log = AttemptLog(self.lines, task, 0.0)
        adapter = QueueWorker([queue]).adapter_for(task)
        await asyncio.create_task(Execution(adapter, ctx, TimeLimits(), AttemptCallbacks(EventBus())).outcome())
        return self.take()

    def take(self) -> list[LoggedLine]:
        taken: list[LoggedLine] = []
        while batch := self.lines.take().lines:
            taken += batch
        return taken


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Captured]:
    yield Captured(monkeypatch)
    structlog.reset_defaults()


def says(line: LoggedLine) -> tuple[str, str, str]:
    return line.level, line.logger, line.message


async def test_all_that_a_coroutine_says_is_kept_once(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue("q")

    monkeypatch.setattr(app, "propagate", False)  # pytest has handlers, so that the one of last resort is not called

    @queue.task
    async def handle(ctx: Context) -> None:
        print("one\ntwo")  # noqa: T201
        print("a", "b", end="")  # noqa: T201
        app.warning("disk %s", "full", extra={"left": 3})
        ctx.log.info("began", size=7)
        ctx.log.debug("below the level of the log")
        structlog.get_logger().error("global")
        sys.stderr.write("careful\n")

    lines = await captured.run(queue, "handle")
    assert [says(line) for line in lines] == [
        ("info", "stdout", "one"), ("info", "stdout", "two"), ("warning", "app", "disk full"),
        ("info", "ctx.log", "began"), ("debug", "ctx.log", "below the level of the log"),
        ("error", "structlog", "global"), ("warning", "stderr", "careful"), ("info", "stdout", "a b"),
    ]  # fmt: skip
    assert [lines[2].fields, lines[3].fields, lines[0].fields] == ['{"left":3}', '{"size":7}', None]
    assert [line.sequence for line in lines] == list(range(8))
    assert captured.out.getvalue() == "one\ntwo\na b", "it still goes where it went"
    logged = [text in captured.err.getvalue() for text in ("began", "careful", "disk full", "below the level")]
    assert logged == [True, True, True, False], "the third by the handler of last resort"


async def test_exceptions_have_a_traceback_and_threads_and_children_belong_to_the_attempt(captured: Captured) -> None:
    queue = Queue("q")

    @queue.task
    async def handle(ctx: Context) -> None:
        try:
            raise LookupError("gone")
        except LookupError:
            app.exception("first")
            ctx.log.exception("second")

    @queue.task
    def plain(ctx: Context) -> None:
        app.error("of a thread")
        own = threading.Thread(target=lambda: ctx.log.info("of a thread without the context"))
        own.start()
        own.join()

    @queue.task
    async def parent() -> None:
        await asyncio.gather(asyncio.to_thread(print, "of to_thread"), child())

    async def child() -> None:
        print("of a child")  # noqa: T201

    for line, start in zip(await captured.run(queue, "handle"), ("first", "second"), strict=True):
        assert line.level == "error"
        assert line.message.startswith(f"{start}\nTraceback")
        assert line.message.endswith("LookupError: gone")
    of_threads = [line.message for line in await captured.run(queue, "plain")]
    assert of_threads == ["of a thread", "of a thread without the context"]
    assert {line.message for line in await captured.run(queue, "parent")} == {"of to_thread", "of a child"}


async def test_two_attempts_at_once_never_mix_their_lines(captured: Captured) -> None:
    queue = Queue("q")

    @queue.task
    async def alternates(who: str) -> None:
        for number in range(100):
            print(who, end=" ")  # noqa: T201
            await asyncio.sleep(0)
            print(number)  # noqa: T201
            app.error("%s %s", who, number)

    @queue.task
    def computes(who: str) -> None:
        for number in range(100):
            print(who, number)  # noqa: T201

    names = dict(enumerate(["alternates", "alternates", "computes", "computes"]))
    runs = [captured.run(queue, name, f'{{"who": "{number}"}}', number) for number, name in names.items()]
    lines = [line for lines in await asyncio.gather(*runs) for line in lines]
    assert {(line.task_id, line.message.split(" ")[0]) for line in lines} == {(one, str(one)) for one in names}


async def test_what_belongs_to_no_attempt_is_not_collected(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "propagate", False)
    captured.install()
    print("outside")  # noqa: T201
    app.error("outside")
    structlog.get_logger().error("outside")
    assert not len(captured.lines)
    assert captured.err.getvalue().count("outside") == 2
    assert (sys.stdout.isatty(), sys.stdout.writable()) == (False, True)
    sys.stdout.writelines(["a", "b"])
    sys.stdout.flush()
    assert captured.out.getvalue() == "outside\nab"
    with pytest.raises(io.UnsupportedOperation):
        sys.stdout.fileno()


async def test_a_process_sends_its_lines_also_when_it_is_killed_and_not_too_many(captured: Captured) -> None:
    lines = await captured.run(process_handlers.talking, "says")
    assert [says(line) for line in lines] == [
        ("info", "stdout", "printed"), ("error", "talking.app", "recorded 1"), ("info", "ctx.log", "bound"),
        ("warning", "stderr", "no end of the line"),
    ]  # fmt: skip
    assert [line.fields for line in lines[1:3]] == ['{"part":7}', '{"size":3}']
    assert [line.message for line in await captured.run(process_handlers.talking, "says_and_dies")] == [
        "the last words"
    ]
    lines = await captured.run(process_handlers.talking, "says_too_much", '{"lines": 50000}')
    assert len(lines) <= 1000
    assert [line.sequence for line in lines[:200]] == list(range(200))
    assert lines[-1].message == "line 49999"
    assert lines[-1].sequence == 49999, "its number says how many lines are missing"


async def test_texts_that_no_database_takes_are_escaped_and_huge_ones_cut(captured: Captured) -> None:
    queue = Queue("q")
    kept = {
        "nul \x00": "nul \\x00", "half a pair \udc80": "half a pair \\udc80", "50 %\r75 %\r100 %": "100 %",
        "windows\r": "windows", "\x1b[31mred": "\x1b[31mred",
    }  # fmt: skip

    @queue.task
    async def handle(ctx: Context) -> None:
        for text in kept:
            print(text)  # noqa: T201
        print("x" * 10**7)  # noqa: T201
        for _ in range(1000):
            print("\N{SNOWMAN}" * 1000, end="")  # noqa: T201
        ctx.log.info("fields", **{f"f{number}": "y" * 10**5 for number in range(100)})

    lines = await captured.run(queue, "handle")
    assert [line.message for line in lines[: len(kept)]] == list(kept.values())
    for line in lines[len(kept) :]:
        assert len(line.message.encode()) <= LINE_LIMIT
        assert line.message.endswith(" … (cut)") or line.fields
        assert len((line.fields or "").encode()) <= 2 * LINE_LIMIT


class Evil:
    def __str__(self) -> str:
        print("inside of __str__")  # noqa: T201
        raise ValueError("no words")

    __repr__ = __str__


def test_the_limits_of_an_attempt_are_bytes_in_any_script() -> None:
    for character in ("x", "\N{SNOWMAN}"):
        lines, message = KeptLines(), character * 1_000
        for number in range(500):
            lines.add(KeptLine(number, 0.0, "info", "app", message, None))
        kept = sum(len(line.message.encode()) for line in lines.take(1_000)[0])
        assert (FIRST_BYTES + LATEST_BYTES) * 0.9 < kept <= FIRST_BYTES + LATEST_BYTES, character


async def test_hostile_arguments_harm_neither_the_handler_nor_the_others(captured: Captured) -> None:
    queue = Queue("q")
    deep: Any = []
    deep.append(deep)

    @queue.task
    async def handle(ctx: Context) -> None:
        ctx.log.info("odd", deep=deep, huge=10**50, nan=float("nan"), text="\udc80\x00")
        with contextlib.suppress(ValueError):  # of structlog's own renderer
            ctx.log.info("evil", thing=Evil())
        app.error("wrong %d", "arguments", extra={"thing": Evil()})
        print("after")  # noqa: T201

    logging.raiseExceptions = False
    lines = await captured.run(queue, "handle")
    logging.raiseExceptions = True
    messages = [line.message for line in lines]
    assert messages[-1] == "after"
    assert any(message.startswith("wrong %d (TypeError") for message in messages)
    for line in lines:
        (line.message + (line.fields or "")).encode()
