"""Events: each reader gets what it reads, and a fact that nobody reads need not be made."""

from __future__ import annotations

import logging

import pytest
import structlog

from peerd.doorbell.event_listener import RingingFacts
from peerd.runtime.observability.alert_detection import AlertReader
from peerd.runtime.observability.events import FINE, AttemptEnded, AttemptStarted, ChoreRan, Events, Fact, TasksClaimed
from peerd.runtime.observability.log_aggregation import Condensed
from peerd.runtime.observability.log_messages import LogReader

CLAIMED = TasksClaimed(count=3, milliseconds=1.5)
RAN = ChoreRan(chore="expire", count=3)


class OfChores:
    """Reads what chores do."""

    def __init__(self) -> None:
        self.read: list[Fact] = []

    def hears(self, kind: type[Fact]) -> bool:
        return kind is ChoreRan

    def __call__(self, fact: Fact) -> None:
        self.read.append(fact)


def test_a_reader_that_chooses_gets_what_it_hears_and_the_others_get_all() -> None:
    chores, everything = OfChores(), list[Fact]()
    events = Events(chores, everything.append)
    events.emit(CLAIMED)
    events.emit(RAN)
    assert chores.read == [RAN]
    assert everything == [CLAIMED, RAN]


def test_a_fact_is_heard_from_the_moment_on_at_which_somebody_listens_to_it() -> None:
    events, everything = Events(OfChores()), list[Fact]()
    assert (events.are_heard(TasksClaimed), events.are_heard(ChoreRan)) == (False, True)
    events.emit(CLAIMED)
    events.listen(everything.append)
    assert events.are_heard(TasksClaimed)
    events.emit(CLAIMED)
    assert everything == [CLAIMED]


@pytest.mark.parametrize(("level", "heard"), [(logging.INFO, False), (logging.DEBUG, True)])
def test_that_a_handler_begins_is_read_by_nobody_but_the_log_at_its_finest(level: int, heard: bool) -> None:  # noqa: FBT001
    log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(level))
    ringing, alerting = RingingFacts(lambda ring: None), AlertReader(lambda *_, **__: None)
    events = Events(Condensed(LogReader(log)), ringing, alerting)
    assert [events.are_heard(kind) for kind in FINE] == [heard] * len(FINE)
    assert AttemptStarted in FINE
    assert events.are_heard(AttemptEnded)
