from __future__ import annotations

import logging

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
from tests.support.rows import rows

CLAIMED = TasksClaimed(count=3, milliseconds=1.5)
RAN = ChoreRan(chore="expire", count=3)


class OfChores:
    """A listener for the events of chores."""

    def __init__(self) -> None:
        self.read: list[Event] = []

    def accepts(self, kind: type[Event]) -> bool:
        return kind is ChoreRan

    def __call__(self, event: Event) -> None:
        self.read.append(event)


def test_a_listener_gets_what_it_accepts_from_the_moment_on_at_which_it_is_subscribed() -> None:
    chores, everything = OfChores(), list[Event]()
    events = EventBus(chores)
    assert (events.has_listeners(TasksClaimed), events.has_listeners(ChoreRan)) == (False, True)
    events.emit(CLAIMED)
    events.listen(everything.append)
    assert events.has_listeners(TasksClaimed)
    events.emit(CLAIMED)
    events.emit(RAN)
    assert (chores.read, everything) == ([RAN], [CLAIMED, RAN])


@rows("level, listened", [(logging.INFO, False), (logging.DEBUG, True)])
def test_the_start_of_a_handler_is_logged_only_at_the_debug_level(level: int, listened: bool) -> None:  # noqa: FBT001
    log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(level))
    ringing, alerting = DoorbellEventListener(lambda ring: None), AlertEventListener(lambda *_, **__: None)
    events = EventBus(SuccessAggregator(LogEventListener(log)), ringing, alerting)
    assert [events.has_listeners(kind) for kind in DEBUG_EVENTS] == [listened] * len(DEBUG_EVENTS)
    assert AttemptStarted in DEBUG_EVENTS
    assert events.has_listeners(AttemptEnded)
