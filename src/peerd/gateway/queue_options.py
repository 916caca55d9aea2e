"""The options of queues, ``[queues.NAME]``, as a gateway asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from peerd.config.settings import QueueSettings

NO_OPTIONS: Final = QueueSettings()


class QueueOptions:
    """The options of all queues.

    >>> options = QueueOptions({"mails": QueueSettings(bury_after=3)})
    >>> options.of("mails").bury_after, options.of("others").bury_after
    (3, None)
    """

    def __init__(self, queues: Mapping[str, QueueSettings]) -> None:
        self._queues = queues
        self.with_history = frozenset(name for name, queue in queues.items() if queue.history is not None)
        """Queues whose finished jobs are kept."""

    def of(self, queue: str) -> QueueSettings:
        """The options of a queue."""
        return self._queues.get(queue, NO_OPTIONS)

    def limits(self) -> dict[str, int]:
        """The most jobs of the queues that have such a limit."""
        return {name: queue.max_jobs for name, queue in self._queues.items() if queue.max_jobs is not None}
