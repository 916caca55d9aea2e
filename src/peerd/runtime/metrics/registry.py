"""The metrics of a process: what is counted in it, and their numbers as messages between processes carry them.

A process counts numbers, events by the table `COUNTED`, and ended attempts, since its start. Thread-safe. The time
series of the database, too, are made of the counts of attempts. Counts only grow; a reader keeps the last snapshot and
subtracts it.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from peerd.domain.attempt_totals import BIN_COUNT, AttemptTotals, Histogram, outcome_of
from peerd.domain.outcome import RELEASED_LABEL, UNKNOWN_LABEL
from peerd.domain.task import NAME_LIMIT
from peerd.runtime.metrics.families import FAMILIES, MetricKind
from peerd.runtime.observability import events
from peerd.runtime.observability.events import AttemptEnded, Event, EventBus

MAX_LABEL: Final = 200  # characters of a label's value
MAX_CHUNK: Final = 64 * 1024
"""Bytes of the samples of one message, so that the master never copies much at once."""
MOST_SERIES: Final = 1_000
"""Series of a process beside those of handlers; all further ones are counted as `(other)`."""


class SeriesKey(NamedTuple):
    """A series: a metric, and the values of its labels."""

    name: str
    labels: tuple[str, ...]

    @property
    def as_other(self) -> SeriesKey:
        """The series that counts all that have no place of their own: queue and outcome stay, names do not."""
        labels = FAMILIES[self.name].labels
        kept = {"outcome"} | ({"queue"} if "name" in labels and self.labels[labels.index("name")] != OTHER else set())
        pairs = zip(labels, self.labels, strict=True)
        return SeriesKey(self.name, tuple(value if label in kept else OTHER for label, value in pairs))


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The number of one series.

    `value` is the number, of a histogram the sum of its durations. `bins` are place and count of each of its bins that
    is not empty.
    """

    name: str
    labels: tuple[str, ...] = ()
    value: float = 0.0
    bins: tuple[tuple[int, int], ...] = ()

    @property
    def key(self) -> SeriesKey:
        """The series that it is a sample of."""
        return SeriesKey(self.name, self.labels)

    @property
    def kind(self) -> MetricKind:
        """The kind of the metric."""
        return FAMILIES[self.name].kind

    @property
    def histogram(self) -> Histogram:
        """The histogram of a sample that has bins."""
        histogram = Histogram(sum=self.value)
        for place, count in self.bins:
            histogram.counts[place] += count
        return histogram


def sample_of(name: str, labels: tuple[str, ...], histogram: Histogram) -> Sample:
    """The sample of a histogram.

    >>> sample_of("peerd_claim_seconds", (), Histogram.of([0.001, 0.001])).bins
    ((0, 2),)
    """
    bins = tuple((place, count) for place, count in enumerate(histogram.counts) if count)
    return Sample(name, labels, histogram.sum, bins)


def is_valid(sample: Sample) -> bool:
    """Whether a sample that a process has sent can be counted: it is of a known metric, and has possible values."""
    family = FAMILIES.get(sample.name)
    if family is None or len(sample.labels) != len(family.labels) or not math.isfinite(sample.value):
        return False
    if sample.value < 0 or any(len(label) > MAX_LABEL for label in sample.labels):
        return False
    return all(0 <= place < BIN_COUNT and count >= 0 for place, count in sample.bins)


def in_chunks(samples: Iterable[Sample], size: int = MAX_CHUNK) -> Iterator[list[Any]]:
    """Samples as values of messages; none has more bytes than `size` as JSON, or it has one sample.

    >>> [len(chunk) for chunk in in_chunks([Sample("peerd_rescues_total")] * 5, size=70)]
    [2, 2, 1]
    """
    chunk: list[Any] = []
    used = 0
    for sample in samples:
        bytes_of_it = len(msgspec.json.encode(sample)) + 1
        if chunk and used + bytes_of_it > size:
            yield chunk
            chunk, used = [], 0
        chunk.append(msgspec.to_builtins(sample))
        used += bytes_of_it
    if chunk:
        yield chunk


def parse_samples(data: object) -> list[Sample]:
    """The valid ones among the samples of a message.

    Raises:
        msgspec.ValidationError: it has something else than samples.
    """
    return [sample for sample in msgspec.convert(data, list[Sample]) if is_valid(sample)]


# ---------------------------------------------------------------- registry


SampleSource = Callable[[], Iterable[Sample]]
"""Reads numbers that another object keeps."""


class MetricsRegistry:
    """The metrics of a process.

    >>> metrics = MetricsRegistry()
    >>> metrics.count("peerd_chore_rows_total", "purge done", by=3)
    >>> metrics.samples()
    [Sample(name='peerd_chore_rows_total', labels=('purge done',), value=3.0, bins=())]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[tuple[str, tuple[str, ...]], float] = {}
        self._histograms: dict[tuple[str, tuple[str, ...]], Histogram] = {}
        self._sources: list[SampleSource] = []

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        with self._lock:
            numbers = self._numbers
            key = (name, labels)
            if key not in numbers:
                key = self._bounded(name, labels)
            numbers[key] = numbers.get(key, 0.0) + by

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        with self._lock:
            histogram = self._histograms.get((name, labels))
            if histogram is None:
                key = self._bounded(name, labels)
                histogram = self._histograms.setdefault(key, Histogram())
            histogram.add(seconds)

    def add_source(self, source: SampleSource) -> None:
        """Read these, too; it is called on the event loop."""
        self._sources.append(source)

    def samples(self) -> list[Sample]:
        """All numbers as they are now."""
        with self._lock:
            found = [Sample(name, labels, value) for (name, labels), value in self._numbers.items()]
            found += [sample_of(name, labels, one) for (name, labels), one in self._histograms.items()]
        for source in self._sources:
            found += source()
        return found

    def _bounded(self, name: str, labels: tuple[str, ...]) -> SeriesKey:
        """The series of labels that are counted for the first time."""
        if len(self._numbers) + len(self._histograms) >= MOST_SERIES:
            return SeriesKey(name, labels).as_other
        return SeriesKey(name, tuple(label[:MAX_LABEL] for label in labels))


def attempt_samples(statistics: AttemptStatistics) -> Iterable[Sample]:
    """The samples of the attempts that a process has ended."""
    for (queue, name), found in statistics.snapshot().items():
        for outcome, count in found.outcomes.items():
            yield Sample("peerd_tasks_finished_total", (queue, name, outcome), count)
        yield sample_of("peerd_task_wait_seconds", (queue, name), found.wait)
        yield sample_of("peerd_task_run_seconds", (queue, name), found.run)


def _count_claim(metrics: MetricsRegistry, event: events.TasksClaimed) -> None:
    metrics.count("peerd_claimed_tasks_total", by=event.count)
    metrics.observe("peerd_claim_seconds", event.milliseconds / 1000)


def _count_lost_claim(metrics: MetricsRegistry, event: events.ClaimLost) -> None:
    if event.noticed_at == "outcome":
        metrics.count("peerd_refused_writes_total")
    else:
        metrics.count("peerd_lost_claims_total", event.noticed_at)


def _count_rescues(metrics: MetricsRegistry, event: events.TasksRescued) -> None:
    metrics.count("peerd_rescues_total", by=len(event.task_ids))
    if event.dead:
        metrics.count("peerd_rescued_dead_total", by=event.dead)


def _counting(name: str, *labels: str, by: str = "") -> Callable[[MetricsRegistry, Any], None]:
    """Count an event: fields with the labels, and a field with the number, or with what there are so many of."""

    def count(metrics: MetricsRegistry, event: Event) -> None:
        number = getattr(event, by) if by else 1
        given = (str(getattr(event, label)) for label in labels)
        metrics.count(name, *given, by=len(number) if isinstance(number, tuple) else number)

    return count


COUNTED: Final[dict[type[Event], Callable[[MetricsRegistry, Any], None]]] = {
    events.TasksClaimed: _count_claim,
    events.ClaimLost: _count_lost_claim,
    events.UnknownClaimReleased: _counting("peerd_unknown_claims_released_total"),
    events.TasksRescued: _count_rescues,
    events.ReservationsReleased: _counting("peerd_released_reservations_total", by="task_ids"),
    events.BadCopiesFound: _counting("peerd_storage_bad_copies_total", "disk", "found_by", by="files"),
    events.ComponentFailed: _counting("peerd_component_failures_total", "component"),
    events.DatabaseOutageStarted: _counting("peerd_database_outages_total"),
    events.DatabaseOutageEnded: _counting("peerd_database_outage_seconds_total", by="seconds"),
    events.ChoreRan: _counting("peerd_chore_rows_total", "chore", by="count"),
    events.ScheduleRunEnded: _counting("peerd_schedule_runs_total", "schedule", "status"),
}


def count_events(bus: EventBus, metrics: MetricsRegistry) -> None:
    """Count the events of a bus in a registry.

    >>> bus, metrics = EventBus(), MetricsRegistry()
    >>> count_events(bus, metrics)
    >>> bus.emit(events.ChoreRan(chore="purge done", count=3))
    >>> metrics.samples()[0].value
    3.0
    """
    bus.listen(lambda event: COUNTED[type(event)](metrics, event), COUNTED)


# ---------------------------------------------------------------- attempts


MOST_HANDLERS: Final = 500
"""Handlers that are counted one by one: SQL by hand can invent any number of names."""
OTHER: Final = "(other)"
"""The name under which all further handlers of a queue are counted."""
UNTIMED: Final = frozenset({RELEASED_LABEL, UNKNOWN_LABEL})
"""Outcomes of released tasks: most did not begin, and their times say nothing about a handler."""


class HandlerKey(NamedTuple):
    """A handler: the queue and the name of its tasks."""

    queue: str
    name: str


class HandlerStatistics:
    """The ended attempts of one handler.

    Attributes:
        outcomes: how many attempts had each outcome, by its label: done, failure, dead, timeout, snoozed, ….
        wait: seconds from the moment at which a task was due to its claim; not of released attempts.
        run: seconds for which its handler ran; not of released attempts.
    """

    __slots__ = ("outcomes", "run", "wait")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wait = Histogram()
        self.run = Histogram()

    def copy(self) -> HandlerStatistics:
        """Statistics of its own with the same counts."""
        copied = HandlerStatistics()
        copied.outcomes, copied.wait, copied.run = Counter(self.outcomes), self.wait.copy(), self.run.copy()
        return copied

    def since(self, earlier: HandlerStatistics | None) -> AttemptTotals:
        """The attempts that were counted after an earlier copy was made; None: all."""
        before = earlier or HandlerStatistics()
        totals = AttemptTotals(wait=self.wait.since(before.wait), run=self.run.since(before.run))
        for label, count in self.outcomes.items():
            totals.outcomes[outcome_of(label)] += count - before.outcomes[label]
        return totals


class AttemptStatistics:
    """Listens to the ends of attempts, in the thread of the event loop. A snapshot may be taken in any thread.

    A drain ends tens of thousands of attempts in a second, so what is done for each is kept short: 0.7 microseconds.

    >>> statistics = AttemptStatistics()
    >>> statistics(AttemptEnded(task_id=1, queue="mail", name="send", outcome="done", seconds=0.2, wait=1.5))
    >>> [(key.name, dict(found.outcomes), found.run.count) for key, found in statistics.snapshot().items()]
    [('send', {'done': 1}, 1)]
    """

    def __init__(self) -> None:
        self._by_handler: dict[tuple[str, str], HandlerStatistics] = {}

    def __call__(self, event: Event) -> None:
        """Count the end of an attempt."""
        assert isinstance(event, AttemptEnded)
        found = self._by_handler.get((event.queue, event.name)) or self._add(event.queue, event.name)
        outcomes, outcome = found.outcomes, event.outcome
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if outcome in UNTIMED:
            return
        found.run.add(event.seconds)
        wait = event.wait
        if wait is not None:
            found.wait.add(wait)

    def snapshot(self) -> dict[HandlerKey, HandlerStatistics]:
        """Copies of all counts."""
        by_handler = list(self._by_handler.items())  # at once: the event loop may add one meanwhile
        return {HandlerKey(*key): found.copy() for key, found in by_handler}

    def key_of(self, queue: str, name: str) -> HandlerKey:
        """The handler under which an attempt is counted; from then on it is one of those that are."""
        if (queue, name) not in self._by_handler:
            self._add(queue, name)
        return HandlerKey(queue, name if (queue, name) in self._by_handler else OTHER)

    def _add(self, queue: str, name: str) -> HandlerStatistics:
        is_counted_alone = len(self._by_handler) < MOST_HANDLERS and len(name) <= NAME_LIMIT
        key = (queue, name if is_counted_alone else OTHER)
        return self._by_handler.setdefault(key, HandlerStatistics())
