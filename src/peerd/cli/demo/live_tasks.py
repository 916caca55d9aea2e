"""New tasks every now and then while the dashboard is open, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Self

from rich.text import Text

from peerd.cli.command import CommandContext
from peerd.cli.demo.sandbox import PIECE, DemoSandbox
from peerd.cli.errors import CommandError
from peerd.cli.output import LiveDisplay, first_line, format_elapsed, pluralize
from peerd.domain.errors import DatabaseUnavailable, TaskNotFound
from peerd.domain.lifecycle import IllegalTransition, Status
from peerd.domain.task import Call, Task, encode_arguments
from peerd.operate.client import Client


class StopSignals(AbstractContextManager["StopSignals"]):
    """While it is entered, the first SIGINT or SIGTERM sets `requested`; each further one raises KeyboardInterrupt.

    >>> import os
    >>> with StopSignals() as signals:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     signals.requested
    True
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _request(self, *_: object) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


# ---------------------------------------------------------------- rounds


ROUNDS_BETWEEN_OTHERS: Final = 6
"""Each so many rounds, a task that fails and one that starts later are enqueued too."""
START_IN: Final = "1m"
HEIGHTS: Final = (480, 360, 240, 432, 288, 180)
"""Heights of the transcodes, in turn; the files are written in turn too, so that they do not become more."""
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


# ---------------------------------------------------------------- until a signal


ROUND_INTERVAL: Final = 10.0
"""Seconds between two rounds of new tasks."""
POLL_INTERVAL: Final = 0.25
READ_INTERVAL: Final = 1.0
MAX_READ: Final = 1_000


class LiveTasks:
    """Tasks for nodes that go on.

    Args:
        context: of the command.
        client: of the database of the nodes.
        sandbox: the nodes, and the folder with the piece.
        signals: what requests the end.
    """

    def __init__(self, context: CommandContext, client: Client, sandbox: DemoSandbox, signals: StopSignals) -> None:
        self._context = context
        self._client = client
        self._sandbox = sandbox
        self._signals = signals
        self._display = LiveDisplay(context.out, silent=context.as_json)
        self._rounds = TaskRounds(client, sandbox.queue)

    def run(self) -> None:
        """Enqueue tasks until a signal; then stop the nodes, and cancel what they leave.

        Raises:
            CommandError: the node with the dashboard has ended.
        """
        damage(self._sandbox.media)
        with self._display:
            self._enqueue_until_requested()
            self._display.print(Text("Stopping the nodes …"))
        self._sandbox.stop()
        with contextlib.suppress(DatabaseUnavailable):
            self._cancel_unfinished()

    def _enqueue_until_requested(self) -> None:
        began = next_round = next_reading = time.monotonic()
        while not self._signals.requested:
            now = time.monotonic()
            if now >= next_reading:
                next_reading = now + READ_INTERVAL
                self._require_dashboard_node()
                try:
                    unfinished = self._read_unfinished()
                    if now >= next_round:
                        next_round = now + ROUND_INTERVAL
                        self._rounds.enqueue(unfinished)
                    self._show(unfinished, now - began)
                except DatabaseUnavailable as error:  # the nodes go on when it is back, and so does this
                    self._display.update(Text(first_line(str(error)), style="bold red"))
            time.sleep(POLL_INTERVAL)

    def _require_dashboard_node(self) -> None:
        node = self._sandbox.dashboard_node
        status = node.process.poll()
        if status is not None:
            message = f"node {node.name}, which serves the dashboard, has ended with status {status}"
            raise CommandError(message, f"read {node.log}")

    def _read_unfinished(self) -> list[Task]:
        return self._client.tasks.list(
            queue=self._sandbox.queue, where=["finished_at=null"], limit=MAX_READ, bodies=False
        )

    def _show(self, unfinished: list[Task], seconds: float) -> None:
        if not self._display.is_terminal:
            return
        working = sum(task.status is Status.WORKING for task in unfinished)
        counts = (
            f"{pluralize(self._rounds.count, 'task')} enqueued; {working} working, {len(unfinished) - working} waiting"
        )
        self._display.update(Text(f"Live for {format_elapsed(seconds)}: {counts}. Ctrl-C stops the nodes."))

    def _cancel_unfinished(self) -> None:
        """Cancel what no node will run any more: a database that is not the demo's own would keep it for ever."""
        for task in self._read_unfinished():
            with contextlib.suppress(TaskNotFound, IllegalTransition):
                self._client.tasks.cancel(task.id, "the demo has ended")
