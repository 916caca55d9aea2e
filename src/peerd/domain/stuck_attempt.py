"""An attempt whose code does not end although its time is over, and what becomes of its task when its process is dead.

A thread cannot be cancelled, and a coroutine can swallow its cancellation. As long as it runs, nobody else may run the
task, so its outcome is not written yet: the process tells it to its master, the master tells it with the death of the
process, and the agent writes it then, fenced by the lease as every other outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from peerd.domain.outcome import Canceled, Failed


class StuckAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that has reached its hard limit of time.

    >>> stuck = StuckAttempt(task_id=1, lease=2, queue="q", name="it", seconds=60.0, label="timeout", error="too long")
    >>> StuckAttempt.from_json(stuck.to_json()) == stuck
    True
    """

    task_id: int
    lease: int
    queue: str
    name: str
    seconds: float
    """How long it had run."""
    label: str
    """The attempt's outcome: `timeout`, or `canceled` where its finish_at has come."""
    error: str
    traceback: str | None = None
    """Where its code was."""
    retry_in: float | None = None
    """Seconds until the next attempt, if the policy of the task has one left."""
    is_last: bool = False
    """Whether no other attempt follows."""

    def outcome(self, cause: str) -> Failed | Canceled:
        """What is written.

        Args:
            cause: how the process died.
        """
        if self.label == "canceled":
            return Canceled(self.error)
        return Failed(error=self.error, traceback=self.traceback, retry_in=self.retry_in, label=self.label, cause=cause)

    def to_json(self) -> dict[str, Any]:
        """As it stands in a frame."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What came in a frame.

        Raises:
            msgspec.ValidationError: it is none.
        """
        return msgspec.convert(data, cls)
