"""The settings of one worker: what its class says, and over that what peerd.toml says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from peerd.config.settings import WorkerSettings
from peerd.domain.duration import parse_duration

DURATIONS = ("sleep", "update", "delay_ratio", "timeout", "poll_every")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works. Durations are in seconds, sizes in bytes.

    ``count`` tasks at once; a touch every ``update``; ``max_attempts`` where neither row nor handler says;
    ``delay_ratio`` × attempts before the next one; ``sleep`` after each end of a periodic worker's loop; ``poll_every``
    at most between two looks into an empty queue; ``timeout`` of an attempt where neither row nor handler says.
    """

    queues: tuple[str, ...] = ()
    count: int = 1
    max_attempts: int = 3
    delay_ratio: float = 300.0
    update: float = 3.0
    sleep: float = 1.0
    poll_every: float = 1.0
    timeout: float | None = None
    recycle_after: int | None = None
    recycle_age: float | None = None
    recycle_memory: int | None = None
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, worker: object, given: WorkerSettings | None = None) -> Self:
        """The settings of a worker object: its class's attributes, overridden by what the config gives explicitly."""
        values: dict[str, Any] = {}
        for field in cls.__struct_fields__:
            value = getattr(worker, field, None)
            if value is not None:
                values[field] = parse_duration(value) if field in DURATIONS else value
        if given is not None:
            explicit = {key: getattr(given, key) for key in given.model_fields_set & set(cls.__struct_fields__)}
            values |= {key: value for key, value in explicit.items() if value is not None}
        if "queues" in values:
            values["queues"] = tuple(values["queues"])
        return cls(**values)
