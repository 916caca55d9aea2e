"""For tests of code that uses peerd. docs/testing.md shows all of it, with examples that run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peerd.runtime.observability.events import AttemptEnded, AttemptStarted, ClaimLost, Event
    from peerd.testing.clock import Clock, ClockNotGovernable
    from peerd.testing.event_recorder import EventRecorder
    from peerd.testing.faulty_database import Fault, FaultyDatabase
    from peerd.testing.inline import Ran, run_inline, run_row
    from peerd.testing.node.inline_node import InlineNode
    from peerd.testing.rows import insert_task, make_task
    from peerd.testing.waiting import eventually, eventually_async

_NAMES = {
    "peerd.runtime.observability.events": ("AttemptEnded", "AttemptStarted", "ClaimLost", "Event"),
    "peerd.testing.clock": ("Clock", "ClockNotGovernable"),
    "peerd.testing.event_recorder": ("EventRecorder",),
    "peerd.testing.faulty_database": ("Fault", "FaultyDatabase"),
    "peerd.testing.inline": ("Ran", "run_inline", "run_row"),
    "peerd.testing.node.inline_node": ("InlineNode",),
    "peerd.testing.rows": ("insert_task", "make_task"),
    "peerd.testing.waiting": ("eventually", "eventually_async"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

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
