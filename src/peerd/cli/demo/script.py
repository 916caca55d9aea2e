"""What the demo tells: the clip, the nodes, the tasks, the murder, the ending."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

from peerd.cli.context import CommandContext
from peerd.cli.demo.clip import copy_clip
from peerd.cli.demo.sandbox import DemoSandbox
from peerd.cli.demo.screens import DemoScreen, select_demo_screen
from peerd.cli.demo.snapshot import DemoSnapshot, WorkerKill
from peerd.cli.demo.summary import DemoSummary
from peerd.domain.call import Call
from peerd.domain.duration import format_duration, parse_duration
from peerd.domain.lifecycle import Status
from peerd.domain.task import encode_arguments
from peerd.operate.client import Client
from peerd.store.schema.migrate import migrate

HEIGHTS: Final = (480, 360, 240, 432, 288, 180)
"""Heights of the transcodes, in turn; they take long enough to watch and short enough to wait for."""
KILL_AT_PROGRESS: Final = 0.3
"""How far a transcode is when its worker is killed."""
POLL_INTERVAL: Final = 0.25


class DemoScript:
    """One telling of the demo.

    Args:
        context: where it is told.
        sandbox: where it plays.
        clip: a video of the user's own, or None for the sample.
        count: transcodes.
        timeout: after which it is given up.
    """

    def __init__(
        self, context: CommandContext, sandbox: DemoSandbox, *, clip: Path | None, count: int, timeout: str
    ) -> None:
        self._sandbox = sandbox
        self._clip = clip
        self._count = count
        self._timeout = parse_duration(timeout)
        self._client = Client(sandbox.database)
        self._desk = context
        self._screen: DemoScreen = select_demo_screen(context)
        self._kill: WorkerKill | None = None

    def run(self) -> bool:
        """Tell it; whether it ended as it should."""
        began = time.monotonic()
        with self._client, self._screen as screen:
            source = copy_clip(self._clip, self._sandbox.media, self._report)
            self._start_nodes()
            ids = self._enqueue(source)
            snapshot = self._watch(ids, began)
            screen.end()
            summary = DemoSummary.of(self._client, self._sandbox, snapshot, self._kill, time.monotonic() - began)
        self._sandbox.stop()
        self._desk.answer(summary.as_json(), summary.render)
        return summary.succeeded

    def _start_nodes(self) -> None:
        if self._client.database.name != "sqlite":
            migrate(self._client.database)
        self._report(f"Starting two nodes on {self._client.database.url.render_as_string(hide_password=True)} …")
        self._sandbox.start_nodes()
        names = " and ".join(node.name for node in self._sandbox.nodes)
        self._report(f"{names} are ready: each a master, an agent, a manager and two video workers.")

    def _enqueue(self, source: str) -> list[int]:
        ids = []
        for number in range(self._count):
            height = HEIGHTS[number % len(HEIGHTS)]
            output = f"{Path(source).stem}-{number + 1}-{height}p.mp4"
            arguments = {"source": source, "output": output, "height": height, "quality": "draft"}
            ids.append(self._client.enqueue(Call(self._sandbox.queue, "transcode", encode_arguments(arguments))).id)
        self._report(f"Enqueued {len(ids)} transcodes as rows of the table tasks, queue {self._sandbox.queue}.")
        return ids

    def _watch(self, ids: list[int], began: float) -> DemoSnapshot:
        """Look until all have ended; in the middle, kill."""
        while True:
            snapshot = DemoSnapshot.read(self._client, ids)
            if self._kill is None:
                self._kill = self._kill_worker(snapshot)
            self._screen.show(snapshot, self._kill)
            if snapshot.ended:
                return snapshot
            if time.monotonic() - began > self._timeout:
                self._report(f"Not done after {format_duration(self._timeout)}: given up.", emphasized=True)
                return snapshot
            time.sleep(POLL_INTERVAL)

    def _kill_worker(self, snapshot: DemoSnapshot) -> WorkerKill | None:
        """Kill the worker process of the first task that is far enough, as no program can refuse."""
        for task in snapshot.tasks:
            process = snapshot.processes.get(task.process_id or 0)
            if task.status is Status.WORKING and (task.progress or 0.0) >= KILL_AT_PROGRESS and process is not None:
                kill = WorkerKill(task.id, task.progress or 0.0, process, snapshot.node_name(process.node_id))
                os.kill(process.pid, signal.SIGKILL)
                self._report(kill.description, emphasized=True)
                return kill
        return None

    def _report(self, text: str, *, emphasized: bool = False) -> None:
        self._screen.report(text, emphasized=emphasized)
