"""The settings of one worker: the attributes of its class, overridden by peerd.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgspec

from peerd.config.settings import WorkerSettings
from peerd.domain.duration import parse_duration
from peerd.domain.size import parse_size

Count = Annotated[int, msgspec.Meta(ge=1)]
Period = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
DURATIONS = [
    "sleep",
    "update",
    "delay_ratio",
    "timeout",
    "timeout_grace",
    "hook_timeout",
    "poll_every",
    "rung_poll_every",
    "recycle_age",
    "drain_timeout",
    "unknown_after",
]


class EffectiveWorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings in seconds and bytes.

    ``count`` slots; a touch every ``update``; ``max_attempts`` where neither row nor handler says; ``delay_ratio`` ×
    attempts before the next one; ``sleep`` after each end of a periodic worker's loop; ``poll_every`` at most between
    two polls of an empty queue, and ``rung_poll_every`` while the doorbell is known to work; ``timeout`` of an attempt
    where neither row nor handler says, and ``timeout_grace`` for returning after it; ``hook_timeout`` of the hooks
    before an attempt, and of those after it; ``unknown_after``: a task is dead whose handler no process has known for
    so long.
    """

    queues: tuple[str, ...] = ()
    count: Count = 1
    max_attempts: Count = 3
    delay_ratio: float = 300.0
    update: Period = 3.0
    sleep: float = 1.0
    poll_every: Period = 1.0
    rung_poll_every: Period = 10.0
    timeout: Period | None = None
    timeout_grace: NotNegative = 30.0
    hook_timeout: Period = 30.0
    unknown_after: NotNegative = 3600.0
    recycle_after: Count | None = None
    recycle_age: Period | None = None
    recycle_memory: Count | None = None
    recycle_cpu: Period | None = None
    drain_timeout: Period | None = None
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, worker: object, given: WorkerSettings | None = None) -> Self:
        """The attributes of a worker object, overridden by the settings that the config gives explicitly.

        Raises:
            ValueError: an attribute has a wrong value; the error names it.
        """
        values: dict[str, Any] = {}
        for field in cls.__struct_fields__:
            value = getattr(worker, field, None)
            if value is not None:
                values[field] = _parse(field, value)
        if given is not None:
            explicit = {key: getattr(given, key) for key in given.given if key in cls.__struct_fields__}
            values |= {key: value for key, value in explicit.items() if value is not None}
        try:
            return msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"{type(worker).__name__}: {error}") from error


def _parse(field: str, value: Any) -> Any:
    """A class attribute as a setting."""
    match field:
        case "queues":
            return (value,) if isinstance(value, str) else tuple(value)
        case "recycle_memory":
            return parse_size(value)
        case _ if field in DURATIONS:
            try:
                return parse_duration(value)
            except ValueError as error:
                raise ValueError(f"{field}: {error}") from error
        case _:
            return value
