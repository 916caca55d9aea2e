"""Views of statistics."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from peerd.domain.lifecycle import Status
from peerd.operate.diagnostics.finding import Level, Verdict


class ValueView(BaseModel):
    """The root of views that have the fields of a value of `peerd.operate.figures`."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, value: object) -> Self:
        """The view of a value."""
        return cls.model_validate(value)


class DurationsView(ValueView):
    """Durations in seconds; quantiles are known to within 19 %. Null: there are none."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class FiguresView(ValueView):
    """What became of the attempts of some time."""

    seconds: float = Field(description="Of that time.")
    done: int
    failed: int = Field(description="With another attempt to follow.")
    timed_out: int
    dead: int = Field(description="Failed as the last attempt.")
    canceled: int
    snoozed: int
    released: int = Field(description="By their process: it stopped, or did not know the handler.")
    per_second: float = Field(description="Attempts that succeeded.")
    failure_share: float | None = Field(description="Of those that succeeded or failed.")
    busy: float = Field(description="Slots that were occupied, on average.")
    wait: DurationsView = Field(description="From the moment in which a task was due to that of its claim.")
    run: DurationsView


class AttemptsView(ValueView):
    """Attempts of a queue, a handler or a node; null where they are of several."""

    queue: str | None = Field(examples=["video"])
    name: str | None = Field(examples=["transcode"])
    node: str | None = Field(examples=["video-1"])
    figures: FiguresView


class RowView(AttemptsView):
    """The same, and the attempts to which they are compared."""

    before: FiguresView | None


class PointView(AttemptsView):
    """The attempts that ended from `at` on, for the seconds of its figures."""

    at: datetime


class ErrorGroupView(ValueView):
    """Attempts of one handler that failed alike."""

    queue: str = Field(examples=["video"])
    name: str = Field(examples=["transcode"])
    error: str = Field(description="What they have in common.", examples=["KeyError: 'user-<n>'"])
    count: int = Field(description="Attempts.")
    tasks: int
    dead: int = Field(description="Of these tasks.")
    first_at: datetime
    last_at: datetime
    example: str = Field(description="The text of the last one.")
    example_task: Annotated[str, BeforeValidator(str)] = Field(description="The id of its task.", examples=["17"])
    search: str | None = Field(description="With the queue and the name, a filter finds the tasks by this text.")


class ErrorsView(ValueView):
    """Groups of errors, the greatest first."""

    groups: list[ErrorGroupView]
    examined: int = Field(description="Failed attempts.")
    complete: bool = Field(description="They are all of the time; otherwise there are older ones.")


class DepthView(ValueView):
    """Tasks of one status at one moment; of an older one, the most in its ten minutes, or its hour."""

    at: datetime
    queue: str = Field(description="Empty: all queues.", examples=["video"])
    status: Status
    count: int
    at_least: bool = Field(description="There were so many or more: counting ends at 10,000 of a queue.")
    oldest: float | None = Field(description="Seconds for which the oldest pending task had been due.")


class QueueFiguresView(ValueView):
    """A queue: its tasks by the latest sample, and its attempts of the last ten minutes."""

    name: str = Field(examples=["video"])
    known: bool = Field(description="A worker process has served it, or it was paused.")
    paused: bool
    counts: dict[Status, int] = Field(examples=[{"pending": 12, "working": 3}])
    at_least: list[Status] = Field(description="Statuses with so many or more: counting ends at 10,000.")
    oldest: float | None = Field(description="Seconds for which the oldest pending task had been due.")
    figures: FiguresView | None


class NodeFiguresView(ValueView):
    """A node, and how busy its slots were in the last ten minutes."""

    name: str = Field(examples=["video-1"])
    state: str = Field(examples=["active"])
    slots: int
    busy: float
    utilisation: float | None


class FindingView(ValueView):
    """What was examined, the result, and what to do."""

    level: Level
    subject: str = Field(examples=["nodes"])
    message: str = Field(examples=["video-2 has been silent for 10m; its tasks go to others"])
    remedy: str
    about: dict[str, str] = Field(description="Where to look, by kind.", examples=[{"node": "video-2"}])


class ProspectView(ValueView):
    """How the number of waiting tasks of a queue changes."""

    waiting: int
    per_minute: float = Field(description="More tasks each minute; less than 0: fewer.")
    seconds: float = Field(description="Over which that was measured.")
    gone_in: float | None = Field(description="Seconds until none waits, at this rate; null: there are more and more.")


class QueueWaitView(ValueView):
    """Why tasks of a queue wait, and the estimate of their end, where there can be one."""

    reasons: list[FindingView]
    prospect: ProspectView | None


class OverviewView(ValueView):
    """Whether all is well, and the figures of the last ten minutes."""

    now: datetime
    sampled_at: datetime | None = Field(description="When the tasks were counted.")
    verdict: Verdict = Field(description="Red with a problem, yellow with a warning, green else.")
    findings: list[FindingView] = Field(description="What was examined, the worst first.")
    figures: FiguresView
    counts: dict[Status, int]
    at_least: list[Status]
    oldest: float | None
    slots: int
    queues: list[QueueFiguresView]
    nodes: list[NodeFiguresView]
