"""What the demo tells: the clip, the nodes, the tasks, the murder, the ending."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

from peerd.cli.context import Desk
from peerd.cli.demo.clip import put_clip
from peerd.cli.demo.sandbox import Stage
from peerd.cli.demo.screens import Screen, screen_for
from peerd.cli.demo.snapshot import Murder, Scene
from peerd.cli.demo.summary import Ending
from peerd.domain.call import Call
from peerd.domain.duration import format_duration, parse_duration
from peerd.domain.lifecycle import Status
from peerd.domain.task import text_of
from peerd.operate.client import Client
from peerd.store.schema.migrate import migrate

HEIGHTS: Final = (480, 360, 240, 432, 288, 180)
"""Heights of the transcodes, in turn; they take long enough to watch and short enough to wait for."""
KILL_FROM: Final = 0.3
"""How far a transcode is when its worker is killed."""
LOOK_EVERY: Final = 0.25


class Story:
    """One telling of the demo.

    Args:
        desk: where it is told.
        stage: where it plays.
        clip: a video of the user's own, or None for the sample.
        count: transcodes.
        timeout: after which it is given up.
    """

    def __init__(self, desk: Desk, stage: Stage, *, clip: Path | None, count: int, timeout: str) -> None:
        self._stage = stage
        self._clip = clip
        self._count = count
        self._patience = parse_duration(timeout)
        self._client = Client(stage.database)
        self._desk = desk
        self._screen: Screen = screen_for(desk)
        self._murder: Murder | None = None

    def tell(self) -> bool:
        """Tell it; whether it ended as it should."""
        began = time.monotonic()
        with self._client, self._screen as screen:
            source = put_clip(self._clip, self._stage.media, self._say)
            self._start_nodes()
            ids = self._enqueue(source)
            scene = self._watch(ids, began)
            screen.end()
            ending = Ending.of(self._client, self._stage, scene, self._murder, time.monotonic() - began)
        self._stage.stop()
        self._desk.answer(ending.as_json(), ending.for_people)
        return ending.well

    def _start_nodes(self) -> None:
        if self._client.database.name != "sqlite":
            migrate(self._client.database)
        self._say(f"Starting two nodes on {self._client.database.url.render_as_string(hide_password=True)} …")
        self._stage.start_nodes()
        names = " and ".join(node.name for node in self._stage.nodes)
        self._say(f"{names} are ready: each a master, an agent, a manager and two video workers.")

    def _enqueue(self, source: str) -> list[int]:
        ids = []
        for number in range(self._count):
            height = HEIGHTS[number % len(HEIGHTS)]
            output = f"{Path(source).stem}-{number + 1}-{height}p.mp4"
            arguments = {"source": source, "output": output, "height": height, "quality": "draft"}
            ids.append(self._client.enqueue(Call(self._stage.queue, "transcode", text_of(arguments))).id)
        self._say(f"Enqueued {len(ids)} transcodes as rows of the table tasks, queue {self._stage.queue}.")
        return ids

    def _watch(self, ids: list[int], began: float) -> Scene:
        """Look until all have ended; in the middle, kill."""
        while True:
            scene = Scene.look(self._client, ids)
            if self._murder is None:
                self._murder = self._kill_a_worker(scene)
            self._screen.show(scene, self._murder)
            if scene.ended:
                return scene
            if time.monotonic() - began > self._patience:
                self._say(f"Not done after {format_duration(self._patience)}: given up.", loud=True)
                return scene
            time.sleep(LOOK_EVERY)

    def _kill_a_worker(self, scene: Scene) -> Murder | None:
        """Kill the worker process of the first task that is far enough, as no program can refuse."""
        for task in scene.tasks:
            process = scene.processes.get(task.process_id or 0)
            if task.status is Status.WORKING and (task.progress or 0.0) >= KILL_FROM and process is not None:
                murder = Murder(task.id, task.progress or 0.0, process, scene.node_name(process.node_id))
                os.kill(process.pid, signal.SIGKILL)
                self._say(murder.sentence, loud=True)
                return murder
        return None

    def _say(self, text: str, *, loud: bool = False) -> None:
        self._screen.say(text, loud=loud)
