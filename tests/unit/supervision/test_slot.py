from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peerd.supervision.exits import ExitCause, OomKillCounter, ProcessRecord, determine_cause, read_oom_kills
from peerd.supervision.plan import Kind, Plan, PlanError
from peerd.supervision.slot import (
    TRANSITIONS,
    InvalidSlotTransition,
    Slot,
    SlotEvent,
    SlotState,
    backoff_delay,
)
from tests.support.rows import rows

VIDEO = Kind("video", entry="studio:video", stable_after=60.0)


def slot_after(*events: SlotEvent) -> Slot:
    slot = Slot("video-1", VIDEO)
    for event in events:
        slot.apply(event, now=0.0)
    return slot


PATHS = {
    SlotState.STOPPED: (), SlotState.STARTING: (SlotEvent.START,),
    SlotState.RUNNING: (SlotEvent.START, SlotEvent.READY), SlotState.BACKOFF: (SlotEvent.START, SlotEvent.FAIL),
    SlotState.DRAINING: (SlotEvent.START, SlotEvent.READY, SlotEvent.STOP),
    SlotState.EXITED: (SlotEvent.START, SlotEvent.READY, SlotEvent.LEAVE),
}  # fmt: skip


def test_a_transition_of_the_table_happens_and_others_are_refused() -> None:
    for state, event in itertools.product(SlotState, SlotEvent):
        slot = slot_after(*PATHS[state])
        assert slot.state is state
        if (state, event) in TRANSITIONS:
            slot.apply(event, now=1.0)
            assert slot.state is TRANSITIONS[state, event]
            assert (slot.backoff_until is not None) == (slot.state is SlotState.BACKOFF)
        else:
            with pytest.raises(InvalidSlotTransition, match=f"slot 'video-1' is {state}"):
                slot.apply(event, now=1.0)
            assert slot.state is state


def test_the_first_failure_is_retried_at_once_and_each_later_one_waits_longer() -> None:
    slot = slot_after(SlotEvent.START)
    waits = []
    for _ in range(9):
        slot.apply(SlotEvent.FAIL, now=100.0, jitter=0.5)
        assert slot.backoff_until is not None
        assert slot.is_due(slot.backoff_until)
        assert not slot.is_due(slot.backoff_until - 0.01)
        waits.append(slot.backoff_until - 100.0)
        slot.apply(SlotEvent.START, now=100.0)
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    slot.apply(SlotEvent.FAIL, now=100.0)
    slot.try_again_now(100.5)
    assert slot.is_due(100.5), "after a change"
    slot.apply(SlotEvent.START, now=100.5)
    slot.apply(SlotEvent.FAIL, now=100.6)
    assert slot.is_due(100.6), "which resets the failures"
    slot = slot_after()
    assert [slot.restarts, slot.next_generation(), slot.next_generation(), slot.restarts] == [0, 1, 2, 1]
    delays = [backoff_delay(*given, jitter=jitter) for given, jitter in (((3, 0.5, 30.0), 0.0), ((3, 0.5, 30.0), 1.0))]
    assert [*delays, backoff_delay(10_000, 0.5, 30.0, jitter=0.5)] == pytest.approx([0.8, 1.2, 30.0])


def test_a_slot_that_was_stable_starts_again_without_earlier_failures() -> None:
    twice_failed = (SlotEvent.START, SlotEvent.FAIL) * 2
    for ran, failures in ((59.0, 3), (60.0, 1)):
        slot = slot_after(*twice_failed, SlotEvent.START)
        slot.apply(SlotEvent.READY, now=1000.0)
        slot.apply(SlotEvent.FAIL, now=1000.0 + ran)
        assert slot.failures == failures
    booting = slot_after(SlotEvent.START, SlotEvent.FAIL, SlotEvent.START)
    booting.apply(SlotEvent.FAIL, now=1000.0)
    assert booting.failures == 2, "a long boot is no stability"
    recycled = slot_after(*twice_failed, SlotEvent.START, SlotEvent.READY)
    recycled.apply(SlotEvent.RECYCLE, now=5.0)
    assert (recycled.is_due(5.0), recycled.failures) == (True, 2), "recycling is immediate and not a failure"


PLANNED = {"name": "video", "role": "worker", "entry": "studio:video"}


def plan(*kinds: dict[str, Any], **more: Any) -> Plan:
    return Plan.parse({"node": "n", "run_directory": "/r", "project_directory": "/p", "kinds": list(kinds), **more})


def test_processes_are_replaced_when_their_plan_has_changed_and_not_for_their_number() -> None:
    video = Kind("video", entry="studio:video", payload={"count": 4})
    assert video.is_like(replace(video, processes=7))
    assert not video.is_like(replace(video, payload={"count": 5}))
    graces = [kind.grace for kind in plan(PLANNED, PLANNED | {"name": "audio", "grace": 5.0}, grace=90.0).kinds]
    assert graces == [90.0, 5.0], "the node's where a kind has none"


@rows("kinds, error", [
    ([PLANNED | {"shade": "red"}], "kind 'video': unknown shade"),
    ([{"entry": "studio:video"}], "kind '\\?': .*'name'"),
    ([PLANNED | {"role": "king"}], "role 'king' is not one of agent, manager, watcher, worker, web"),
    ([PLANNED | {"payload": "x" * 600_000}], "its payload has 600018 bytes"),
    ([PLANNED | {"processes": -1}], "-1 processes of role worker are not possible"),
    ([PLANNED | {"role": "manager", "processes": 2}], "2 processes of role manager are not possible"),
    ([PLANNED, PLANNED], "two kinds have the same name"),
    ([PLANNED | {"role": "agent"}, PLANNED | {"role": "agent", "name": "b"}], "a node has one agent"),
    ([PLANNED | {"command": ["ls"]}], "a command has a command line, and every other kind an entry"),
    ([PLANNED | {"sockets": ["web"]}], "there is no socket web"),
    ([{"name": "t", "role": "command", "command": ["ls"], "sockets": ["web"]}], "a command is given no sockets"),
])  # fmt: skip
def test_a_plan_that_cannot_be_carried_out_is_refused(kinds: list[dict[str, Any]], error: str) -> None:
    with pytest.raises(PlanError, match=error):
        plan(*kinds)


TOO_LARGE = ExitCause("memory-limit", "it uses 3 GiB")


def ended(returncode: int, **recorded: Any) -> ProcessRecord:
    return ProcessRecord(returncode=returncode, **recorded)


EXITS = [
    ("exit", "exit status 0", ended(0, ready=True)), ("exit", "exit status 0", ended(0, asked_to_stop=True)),
    ("exit", "exit status 1: ValueError: no", ended(1, ready=True, error="ValueError: no")),
    ("signal", "killed by SIGSEGV", ended(-11, ready=True, out_of_memory=True)),
    ("signal", "killed by signal 40", ended(-40, ready=True)),
    ("boot-failed", "exit status 3 before it was ready: no database", ended(3, error="no database")),
    ("signal", "killed by SIGKILL before it was ready", ended(-9)),
    ("boot-failed", "killed because it did not become ready in time", ended(-9, out_of_time=True)),
    ("signal", "killed by SIGKILL before it was ready", ended(-9, out_of_time=True, is_leaving=True)),
    ("signal", "killed by SIGKILL, since it did not end by itself: oh",
     ended(-9, ready=True, out_of_time=True, is_leaving=True, error="oh")),
    ("tainted", "tainted (exit status 70): oh", ended(70, ready=True, retired="tainted", error="oh")),
    ("recycled", "recycled (exit status 75): had 9", ended(75, ready=True, retired="recycle", error="had 9")),
    ("killed-after-grace", "did not end within its grace (killed by SIGKILL)",
     ended(-9, ready=True, out_of_time=True)),
    ("killed-after-grace", "did not end within its grace (exit status 124)", ended(124, ready=True)),
    ("memory-limit", "it uses 3 GiB (exit status 0)", ended(0, ready=True, asked_to_stop=True, reason=TOO_LARGE)),
    ("out-of-memory", "killed by SIGKILL: the kernel was out of memory", ended(-9, ready=True, out_of_memory=True)),
    ("silent", "silent for 60 s (frozen, or its interpreter was blocked), and killed",
     ended(-6, ready=True, killed_silence=60.2)),
]  # fmt: skip


@rows("kind, text, record", EXITS)
def test_an_exit_has_one_cause_and_its_text(kind: str, text: str, record: ProcessRecord) -> None:
    cause = determine_cause(record)
    assert (cause.kind, cause.text) == (kind, text)
    assert (cause.status is None) == (record.returncode < 0) == (cause.signal is not None)


def test_a_kill_is_detected_when_the_counter_has_grown_since_the_last_call(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert (read_oom_kills(events), read_oom_kills(tmp_path / "nothing")) == (2, None)
    assert read_oom_kills(Path("/proc/vmstat")) is not None
    memory = OomKillCounter([tmp_path / "of another version", events])
    found = [memory.has_killed()]
    events.write_text("oom_kill 3\n")
    found += [memory.has_killed(), memory.has_killed(), OomKillCounter([tmp_path / "nothing"]).has_killed()]
    assert found == [False, True, False, False]
