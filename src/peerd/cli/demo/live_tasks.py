"""New tasks every now and then while the dashboard is open, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import time
from typing import Final

from rich.text import Text

from peerd.cli.context import CommandContext
from peerd.cli.demo.sandbox import DemoSandbox
from peerd.cli.demo.stop_signals import StopSignals
from peerd.cli.demo.task_rounds import TaskRounds, damage
from peerd.cli.errors import CommandError
from peerd.cli.output.formatting import first_line, format_elapsed, pluralize
from peerd.cli.output.live_display import LiveDisplay
from peerd.domain.errors import DatabaseUnavailable, TaskNotFound
from peerd.domain.lifecycle import IllegalTransition, Status
from peerd.domain.task import Task
from peerd.operate.client import Client

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
