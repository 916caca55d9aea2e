"""Rounds of new tasks for the demo's nodes: transcodes of a short piece, one that fails, one that starts later."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from peerd.cli.demo.sandbox import PIECE
from peerd.domain.errors import TaskNotFound
from peerd.domain.lifecycle import IllegalTransition, Status
from peerd.domain.task import Call, Task, encode_arguments
from peerd.operate.client import Client

ROUNDS_BETWEEN_OTHERS: Final = 6
"""Each so many rounds, a task that fails and one that starts later are enqueued too."""
START_IN: Final = "1m"
HEIGHTS: Final = (480, 360, 240, 432, 288, 180)
"""Heights of the transcodes, in turn; also their files are written in turn, so that these do not become more."""
DUE: Final = (Status.PENDING, Status.WORKING, Status.FAILURE)
MAX_DUE: Final = 2
"""With more of them, a round enqueues nothing: the machine is slow, or the queue is paused in the dashboard."""
MAX_DEAD: Final = 20
"""Dead tasks that are kept; done ones are deleted by the nodes after an hour."""
DAMAGED: Final = "damaged.mp4"
DAMAGED_BYTES: Final = 512
"""So much of the piece is kept in the damaged file: less than any video has in front of its first picture."""


class TaskRounds:
    """Enqueues a round of tasks at each call. Neither files nor rows grow without end.

    Args:
        client: of the database of the nodes.
        queue: that they serve.
    """

    def __init__(self, client: Client, queue: str) -> None:
        self._client = client
        self._queue = queue
        self._round = 0
        self._dead: deque[int] = deque()
        self.count = 0
        """The tasks that were enqueued."""

    def enqueue(self, unfinished: Sequence[Task]) -> None:
        """Enqueue a transcode; now and then also one of a damaged file, and one that starts later.

        Args:
            unfinished: the tasks of the queue that have not ended; with too many of them, nothing is enqueued.
        """
        if sum(task.status in DUE for task in unfinished) > MAX_DUE:
            return
        self._enqueue_transcode(PIECE)
        if self._round % ROUNDS_BETWEEN_OTHERS == 0:
            self._enqueue_transcode(PIECE, start_in=START_IN)
            self._dead.append(self._enqueue_transcode(DAMAGED))
            self._delete_old_dead()
        self._round += 1

    def _enqueue_transcode(self, source: str, start_in: str | None = None) -> int:
        height = HEIGHTS[self.count % len(HEIGHTS)]
        self.count += 1
        arguments = {"source": source, "output": f"piece-{height}p.mp4", "height": height, "replace": True}
        call = Call(self._queue, "transcode", encode_arguments(arguments))
        return self._client.enqueue(call, start_in=start_in).id

    def _delete_old_dead(self) -> None:
        while len(self._dead) > MAX_DEAD:
            with contextlib.suppress(TaskNotFound, IllegalTransition):  # deleted or retried in the dashboard
                self._client.tasks.delete(self._dead.popleft())


def damage(media: Path) -> None:
    """Write the damaged file into a media directory that has the piece."""
    (media / DAMAGED).write_bytes((media / PIECE).read_bytes()[:DAMAGED_BYTES])
