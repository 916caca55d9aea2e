from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from io import BufferedWriter, FileIO
from pathlib import Path

import structlog

from peerd.doorbell.ringing import DoorbellEventListener
from peerd.runtime.observability.alert_detection import AlertEventListener
from peerd.runtime.observability.events import (
    DEBUG_EVENTS,
    AttemptEnded,
    AttemptStarted,
    ChoreRan,
    Event,
    EventBus,
    TasksClaimed,
    TasksDone,
)
from peerd.runtime.observability.log_file import LogStream
from peerd.runtime.observability.log_messages import log_message_of, schedule_ticked
from peerd.runtime.observability.log_output import MAX_EACH_SPAN, SPAN_SECONDS, SuccessAggregator, log_events
from peerd.testing import eventually, eventually_async
from tests.support.rows import rows

WRITE = """
import sys, threading
from peerd.runtime.observability import events, log_messages
from peerd.runtime.process import uncaught_exceptions
from peerd.runtime.observability.log_output import LogEventListener, configure_logging
log = configure_logging("info", sys.argv[1], node="n", slot="site-1")
FORGED = "x\\n12:00:00.000 [info     ] all is well \\x1b[2J \\x9b \\u202e \\r\\u2028"
try:
    raise LookupError(FORGED)
except LookupError as error:
    reader = LogEventListener(log)
    reader(events.WebRequestFailed(what="GET /\\x1b[31m", error=FORGED, traceback=f"Traceback\\n{FORGED}"))
    reader(log_messages.http_server_warned(FORGED, error=False))
    thread = threading.Thread(target=uncaught_exceptions.log_exception, args=(error,))
    thread.start()
    thread.join()
"""


def written(form: str) -> str:
    done = subprocess.run([sys.executable, "-c", WRITE, form], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr


def test_an_entry_cannot_forge_another_entry_or_control_a_terminal() -> None:
    text = written("console")
    assert not {one for one in text if not (one.isprintable() or one == "\n")}
    entries = [line for line in text.splitlines() if not line.startswith("    ")]
    assert len(entries) == 3, text
    assert all("slot=site-1" in entry for entry in entries), "in every thread"
    assert "    LookupError: x\n    12:00:00.000 [info" in text
    lines = written("json").splitlines()
    assert [json.loads(line)["slot"] for line in lines] == ["site-1"] * 3
    assert "".join(lines).isascii()


@rows("form", ["console", "json"])
def test_a_message_of_the_master_is_one_line_in_the_configured_format(form: str) -> None:
    code = (
        "import sys; from peerd.supervision.reporting import Console; console = Console('n', sys.argv[1])\n"
        "console.log('died: x\\n12:00:00.000 [info] \\x1b[2J'); console.log('ä' * 5000, level='error')"
    )
    done = subprocess.run([sys.executable, "-c", code, form], capture_output=True, text=True, check=True)
    short, long = done.stderr.splitlines()
    assert done.stderr.isascii() or form == "console"
    assert not {one for one in done.stderr if not (one.isprintable() or one == "\n")}
    if form == "json":
        assert json.loads(short)["event"] == "died: x\n12:00:00.000 [info] \x1b[2J"
        assert json.loads(long)["level"] == "error"
    else:
        assert short == r"peerd n: died: x\n12:00:00.000 [info] \x1b[2J"
    assert 1500 < len(long.encode()) < 4096


def test_a_tick_is_logged_by_what_became_of_it() -> None:
    for status, level, sentence in (
        ("enqueued", "debug", "schedule ticked"),
        ("skipped", "info", "schedule skipped"),
        ("missed", "warning", "schedule missed"),
    ):
        event = schedule_ticked(schedule="nightly", run_id=7, tick="03:00", status=status)
        assert log_message_of(event)[:2] == (level, sentence)


def ended(task_id: int, outcome: str = "done", name: str = "send") -> AttemptEnded:
    return AttemptEnded(task_id=task_id, queue="mail", name=name, outcome=outcome, seconds=0.25)


async def test_the_first_successes_and_all_failures_are_reported_each_and_the_rest_together() -> None:
    seen: list[Event] = []
    aggregate = SuccessAggregator(seen.append)
    for task_id in range(MAX_EACH_SPAN + 3):
        aggregate(ended(task_id, name="send" if task_id % 2 else ""))
    assert [event.task_id for event in seen if isinstance(event, AttemptEnded)] == list(range(MAX_EACH_SPAN))
    await eventually_async(lambda: isinstance(seen[-1], TasksDone), timeout=20 * SPAN_SECONDS)
    assert seen[-1] == TasksDone(count=3, seconds=0.75, by_handler={"mail.send": 2, "mail": 1})
    figures = {"tasks": 3, "of": "mail.send 2, mail 1", "ms_each": 250.0}
    assert log_message_of(seen[-1]) == ("info", "tasks done", figures)
    seen = []
    aggregate = SuccessAggregator(seen.append)
    failures = [ended(task_id, "failure") for task_id in range(2 * MAX_EACH_SPAN)]
    for failure in failures:
        aggregate(failure)
    assert seen == failures
    for task_id in range(MAX_EACH_SPAN + 1):
        aggregate(ended(task_id))
    aggregate.flush()
    aggregate(ended(99))
    assert seen[-2:] == [TasksDone(count=1, seconds=0.25, by_handler={"mail.send": 1}), ended(99)]


WRITE_BURST = """
import asyncio, sys, threading, time
from pathlib import Path
from peerd.runtime.observability import log_file
from peerd.runtime.observability.log_output import keep_rotated

log = Path(sys.argv[1])
log_file.redirect_output(log)

def burst():
    for _ in range(100):
        sys.stderr.write("x" * 200_000 + "\\n")
        sys.stderr.flush()
        time.sleep(0.02)

async def main():
    rotating = asyncio.create_task(keep_rotated(log, 1_000_000, 100, lambda: log_file.redirect_output(log)))
    await asyncio.sleep(0.1)  # the burst does not begin with a check of the file
    await asyncio.to_thread(burst)
    rotating.cancel()

asyncio.run(main())
"""


def test_a_burst_does_not_make_the_log_many_times_its_limit(tmp_path: Path) -> None:
    log = tmp_path / "peerd.log"
    subprocess.run([sys.executable, "-c", WRITE_BURST, str(log)], check=True, timeout=60)
    sizes = [file.stat().st_size for file in tmp_path.glob("peerd.log*")]
    assert sum(sizes) == 100 * 200_001, "nothing is lost"
    assert max(sizes) < 4_000_000


CLAIMED = TasksClaimed(count=3, milliseconds=1.5)
RAN = ChoreRan(chore="expire", count=3)


def test_a_listener_gets_the_kinds_it_wants_from_the_moment_on_at_which_it_is_subscribed() -> None:
    chores, everything = list[Event](), list[Event]()
    events = EventBus()
    events.listen(chores.append, (ChoreRan,))
    assert (events.has_listeners(TasksClaimed), events.has_listeners(ChoreRan)) == (False, True)
    events.emit(CLAIMED)
    events.listen(everything.append)
    assert events.has_listeners(TasksClaimed)
    events.emit(CLAIMED)
    events.emit(RAN)
    assert (chores, everything) == ([RAN], [CLAIMED, RAN])


@rows("level, listened", [(logging.INFO, False), (logging.DEBUG, True)])
def test_the_start_of_a_handler_is_logged_only_at_the_debug_level(level: int, listened: bool) -> None:  # noqa: FBT001
    log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(level))
    ringing, alerting = DoorbellEventListener(lambda ring: None), AlertEventListener(lambda *_, **__: None)
    events = EventBus()
    log_events(events, log)
    for listener in (ringing, alerting):
        events.listen(listener, debug=False)
    assert [events.has_listeners(kind) for kind in DEBUG_EVENTS] == [listened] * len(DEBUG_EVENTS)
    assert AttemptStarted in DEBUG_EVENTS
    assert events.has_listeners(AttemptEnded)


def test_a_log_that_takes_nothing_raises_nowhere_and_says_afterwards_what_is_missing(tmp_path: Path) -> None:
    lost: list[OSError] = []
    with Path("/dev/full").open("wb") as device, (tmp_path / "log").open("wb") as file:
        stream = LogStream(BufferedWriter(FileIO(device.fileno(), "wb", closefd=False)), line_buffering=True)
        stream.on_lost = lost.append
        for number in range(3):
            print("lost", number, file=stream)
        eventually(lambda: len(lost) == 1)
        os.dup2(file.fileno(), device.fileno())
        print("there is", "space again", file=stream)
        print("and so on", file=stream)
        stream.detach()
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[-3:-1] == [
        "there is space again",
        "peerd: the log took nothing for a while: 3 writes are missing or late",
    ]
    assert lines[-1] == "and so on"
