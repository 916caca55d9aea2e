from __future__ import annotations

import importlib.machinery
import importlib.util
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

from peerd.domain.lifecycle import (
    FINISHED,
    GONE,
    TRANSITIONS,
    IllegalTransition,
    Status,
    TaskEvent,
    after,
    sources,
    target,
)

ROOT = Path(__file__).parents[3]


def diagram_script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("lifecycle_diagram", str(ROOT / "scripts" / "lifecycle-diagram"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_documented_diagram_matches_the_table_and_the_page_names_every_status() -> None:
    script = diagram_script()
    page = (ROOT / "docs" / "lifecycle.md").read_text()
    assert page.count("-->") > len(Status)
    assert script.with_diagram(page) == page, "run scripts/lifecycle-diagram"
    assert [status for status in Status if f"| `{status}` |" not in page] == []


def test_every_status_can_be_reached_and_every_event_can_happen() -> None:
    reached = {end for end in TRANSITIONS.values() if end is not GONE}
    assert reached | {Status.PENDING, Status.SCHEDULED, Status.WAITING} == set(Status)
    assert {event for _, event in TRANSITIONS} == set(TaskEvent)
    for status in FINISHED:
        events = {event for source, event in TRANSITIONS if source is status}
        assert events == {TaskEvent.RETRY, TaskEvent.PURGE, TaskEvent.DELETE}, status
    for outcome in ["COMPLETE", "FAIL", "DIE", "SNOOZE", "DEFER", "RELEASE", "RESCUE"]:
        assert sources(TaskEvent[outcome]) == (Status.WORKING,), outcome


def test_a_transition_outside_the_table_is_refused_with_the_allowed_ones() -> None:
    for status, event in product(Status, TaskEvent):
        if (status, event) in TRANSITIONS:
            assert after(status, event) is TRANSITIONS[status, event]
            continue
        with pytest.raises(IllegalTransition) as caught:
            after(status, event)
        assert str(caught.value).startswith(f"cannot {event} a task that is {status}; only one that is ")
        assert all(source in str(caught.value) for source in sources(event))


def test_an_event_with_several_ends_has_no_single_target() -> None:
    assert target(TaskEvent.CLAIM) is Status.WORKING
    for event in (TaskEvent.MOVE, TaskEvent.DELETE):
        with pytest.raises(ValueError, match="not to one status"):
            target(event)
