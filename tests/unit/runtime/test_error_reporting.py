from __future__ import annotations

import gzip
import json
import multiprocessing
import re
import threading
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk

from peerd.runtime.observability import error_reporting
from peerd.runtime.observability.error_reporting import ErrorKind, ErrorReport, ErrorReporter, report_of
from peerd.runtime.observability.events import (
    AttemptEnded,
    ErrorHookFailed,
    Event,
    EventBus,
    PeriodicLoopEnded,
    ProcessExited,
)
from peerd.testing import EventRecorder
from tests.support.rows import rows

PAGE = (Path(__file__).parents[3] / "docs" / "error-tracking.md").read_text()


@pytest.fixture
def tracker() -> Iterator[tuple[str, list[bytes]]]:
    """The address of an HTTP server, and what it receives."""
    received: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Not to stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", received
        server.shutdown()


def recipe(title: str, **replaced: str) -> Any:
    """The module of a recipe, as the page has it, for another address."""
    source = re.search(rf"## {title}\n.*?```python\n(.*?)```", PAGE, re.DOTALL)
    assert source is not None
    text = source[1]
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    module = types.ModuleType("errors")
    exec(text, vars(module))
    return module


def raised() -> LookupError:
    secret_of_the_frame = 17
    try:
        raise LookupError(f"no page {secret_of_the_frame}")
    except LookupError as error:
        return error


def attempt_ended(**more: Any) -> AttemptEnded:
    return AttemptEnded(**{
        "task_id": 7, "queue": "video", "name": "cut", "outcome": "failure", "seconds": 1.0, "number": 2,
        "retry_in": 5.0, "error": "LookupError: no page 17", "traceback": "Traceback", **more,
    })  # fmt: skip


def report_to_sentry(host: str) -> None:
    """What a process with the recipe reports of two attempts; raises AssertionError where the hook failed."""
    module = recipe("Sentry", **{"https://KEY@HOST/1": f"http://key@{host}/1"})
    events = EventRecorder()
    reporter = ErrorReporter(module.report, EventBus(events), node="a", slot="jobs-1")
    reporter(attempt_ended(), raised())
    reporter(attempt_ended(task_id=8, name="in_a_process"), None)
    reporter.finish(10.0)
    sentry_sdk.get_client().close(timeout=30.0)
    assert not events.of(ErrorHookFailed)


def test_a_web_hook_gets_the_report_as_json(tracker: tuple[str, list[bytes]]) -> None:
    module = recipe("A web hook", **{"https://example.org/errors": f"http://{tracker[0]}/errors"})
    reporter = ErrorReporter(module.report, EventBus(), node="a", slot="jobs-1")
    reporter(attempt_ended(), raised())
    reporter.finish(10.0)
    report = {"text": "LookupError: no page 17", "traceback": "Traceback", "task_id": "7"}
    assert report.items() <= json.loads(tracker[1][0]).items()


def test_sentry_gets_the_exception_with_its_frames_and_tags(tracker: tuple[str, list[bytes]]) -> None:
    """In a process of its own: the SDK changes `subprocess`, logging and more for as long as a process lives."""
    process = multiprocessing.get_context("spawn").Process(target=report_to_sentry, args=(tracker[0],), daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    found = [json.loads(line) for body in tracker[1] for line in body.splitlines() if b'"event_id"' in line]
    sent = {one["tags"]["task_id"]: one for one in found if "tags" in one}
    assert len([one for one in found if "tags" in one]) == 2, "each once"
    [value] = sent["7"]["exception"]["values"]
    assert (value["type"], value["value"]) == ("LookupError", "no page 17")
    assert value["stacktrace"]["frames"][-1]["vars"]["secret_of_the_frame"] == "17"
    assert {"kind": "handler", "what": "video/cut", "node": "a", "attempt": "2"}.items() <= sent["7"]["tags"].items()
    message = sent["8"].get("message") or sent["8"]["logentry"]["message"]
    assert message == "LookupError: no page 17"
    assert sent["8"]["contexts"]["peerd"]["traceback"] == "Traceback"


EXITED: dict[str, Any] = {"slot": "a-1", "pid": 1}


@rows("event, is_error", [
    (ProcessExited(**EXITED, cause="SIGKILL", expected=True), False),
    (ProcessExited(**EXITED, cause="SIGKILL", expected=False), True),
    (ProcessExited(**EXITED, cause="tainted", expected=False, status=70), False),
    (ProcessExited(**EXITED, cause="exit status 3", expected=False, status=3), True),
    (PeriodicLoopEnded(worker="W", seconds=1.0), False), (attempt_ended(), True),
    (attempt_ended(outcome="timeout", traceback=None), True),
    (attempt_ended(outcome="dead", traceback=None, retry_in=None), True), (attempt_ended(traceback=None), False),
    (attempt_ended(outcome="done", traceback=None, error=None, retry_in=None), False),
    (attempt_ended(outcome="canceled", traceback=None, retry_in=None), False),
    (attempt_ended(outcome="unknown", traceback=None), False),
])  # fmt: skip
def test_only_failures_and_unexpected_ends_are_errors(event: Event, *, is_error: bool) -> None:
    assert (report_of(event) is not None) is is_error


def test_waiting_reports_are_bounded_and_a_hook_that_hangs_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_reporting, "MAX_WAITING", 10)
    events, go_on, began, got = EventRecorder(), threading.Event(), threading.Event(), list[ErrorReport]()

    def slow(report: ErrorReport) -> None:
        began.set()
        go_on.wait(30)
        got.append(report)

    now = 0.0
    reporter = ErrorReporter(slow, EventBus(events), node="a", slot="s", clock=lambda: now)
    for _ in range(100):
        reporter.report_exception(ErrorKind.UNCAUGHT, "x", raised())
    assert [event.error for event in events.of(ErrorHookFailed)] == ["10 reports wait for it; further ones are dropped"]
    go_on.set()
    reporter.finish(10.0)
    assert 10 <= len(got) <= 11
    assert (got[0].node, got[0].slot, got[0].kind) == ("a", "s", "uncaught")
    go_on.clear()
    began.clear()
    hung = EventRecorder()
    reporter = ErrorReporter(slow, EventBus(hung), node="a", slot="s", clock=lambda: now)
    reporter.report_exception(ErrorKind.UNCAUGHT, "x", raised())
    assert began.wait(10)
    now = 2 * error_reporting.HUNG_AFTER
    for _ in range(3):
        reporter.report_exception(ErrorKind.UNCAUGHT, "x", raised())
    [complaint] = hung.of(ErrorHookFailed)
    assert "has not returned for 60 s" in complaint.error
    go_on.set()
