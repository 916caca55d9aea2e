"""For tests of code that uses peerd. docs/testing.md shows all of it, with examples that run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peerd.runtime.observability.events import AttemptEnded, AttemptStarted, ClaimLost, Event
    from peerd.testing.clock import Clock, ClockNotGovernable
    from peerd.testing.event_recorder import EventRecorder
    from peerd.testing.fault import Fault
    from peerd.testing.faulty_database import FaultyDatabase
    from peerd.testing.inline import Ran, run_inline, run_row
    from peerd.testing.node.inline_node import InlineNode
    from peerd.testing.rows import insert_task, make_task
    from peerd.testing.waiting import eventually, eventually_async

_HOMES = {
    "AttemptEnded": "peerd.runtime.observability.events",
    "AttemptStarted": "peerd.runtime.observability.events",
    "ClaimLost": "peerd.runtime.observability.events",
    "Clock": "peerd.testing.clock",
    "ClockNotGovernable": "peerd.testing.clock",
    "Event": "peerd.runtime.observability.events",
    "EventRecorder": "peerd.testing.event_recorder",
    "Fault": "peerd.testing.fault",
    "FaultyDatabase": "peerd.testing.faulty_database",
    "InlineNode": "peerd.testing.node.inline_node",
    "Ran": "peerd.testing.inline",
    "eventually": "peerd.testing.waiting",
    "eventually_async": "peerd.testing.waiting",
    "insert_task": "peerd.testing.rows",
    "make_task": "peerd.testing.rows",
    "run_inline": "peerd.testing.inline",
    "run_row": "peerd.testing.inline",
}

__all__ = [
    "AttemptEnded",
    "AttemptStarted",
    "ClaimLost",
    "Clock",
    "ClockNotGovernable",
    "Event",
    "EventRecorder",
    "Fault",
    "FaultyDatabase",
    "InlineNode",
    "Ran",
    "eventually",
    "eventually_async",
    "insert_task",
    "make_task",
    "run_inline",
    "run_row",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"peerd.testing has no {name!r}; it has {', '.join(sorted(_HOMES))}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
