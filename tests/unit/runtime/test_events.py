"""Events: each reader gets what it reads, and a fact that nobody reads need not be made."""

from __future__ import annotations

import logging

import pytest
import structlog

from peerd.doorbell.event_listener import DoorbellEventListener
from peerd.runtime.observability.alert_detection import AlertEventListener
from peerd.runtime.observability.events import (
    DEBUG_EVENTS,
    AttemptEnded,
    AttemptStarted,
    ChoreRan,
    Event,
    EventBus,
    TasksClaimed,
)
from peerd.runtime.observability.log_aggregation import SuccessAggregator
from peerd.runtime.observability.log_messages import LogEventListener

CLAIMED = TasksClaimed(count=3, milliseconds=1.5)
RAN = ChoreRan(chore="expire", count=3)


class OfChores:
    """Reads what chores do."""

    def __init__(self) -> None:
        self.read: list[Event] = []

    def accepts(self, kind: type[Event]) -> bool:
        return kind is ChoreRan

    def __call__(self, event: Event) -> None:
        self.read.append(event)


def test_a_reader_that_chooses_gets_what_it_accepts_and_the_others_get_all() -> None:
    chores, everything = OfChores(), list[Event]()
    events = EventBus(chores, everything.append)
    events.emit(CLAIMED)
    events.emit(RAN)
    assert chores.read == [RAN]
    assert everything == [CLAIMED, RAN]


def test_an_event_is_received_from_the_moment_on_at_which_it_is_subscribed() -> None:
    events, everything = EventBus(OfChores()), list[Event]()
    assert (events.has_listeners(TasksClaimed), events.has_listeners(ChoreRan)) == (False, True)
    events.emit(CLAIMED)
    events.listen(everything.append)
    assert events.has_listeners(TasksClaimed)
    events.emit(CLAIMED)
    assert everything == [CLAIMED]


@pytest.mark.parametrize(("level", "heard"), [(logging.INFO, False), (logging.DEBUG, True)])
def test_that_a_handler_begins_is_read_only_by_the_log_at_its_finest(level: int, heard: bool) -> None:  # noqa: FBT001
    log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(level))
    ringing, alerting = DoorbellEventListener(lambda ring: None), AlertEventListener(lambda *_, **__: None)
    events = EventBus(SuccessAggregator(LogEventListener(log)), ringing, alerting)
    assert [events.has_listeners(kind) for kind in DEBUG_EVENTS] == [heard] * len(DEBUG_EVENTS)
    assert AttemptStarted in DEBUG_EVENTS
    assert events.has_listeners(AttemptEnded)
