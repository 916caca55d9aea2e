"""The demo's folder: a project, and two nodes that run in it and are always stopped."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from peerd.cli.errors import CommandError
from peerd.cli.following import poll
from peerd.runtime.os_processes import launch_command
from peerd.supervision.control_client import MasterNotRunning, status

NODES: Final = ("demo-a", "demo-b")
READY_TIMEOUT: Final = 90.0
STOP_TIMEOUT: Final = 30.0

JOBS: Final = '''"""The demo's queue: the handlers of peerd's video worker, under a name that no other node serves."""

from peerd import Queue
from peerd.workers.video import MediaRefused, jobs

video = Queue("{queue}")
transcode = video.task(timeout="15m", discard_on=(MediaRefused,))(jobs.transcode)
poster = video.task(timeout="5m", discard_on=(MediaRefused,))(jobs.poster)
'''

CONFIG: Final = """# Node {name} of the demo. Two nodes on one machine differ in their names and run directories.
[node]
name = "{name}"
run_directory = "{name}"
grace = "5s"

[workers.video]
tasks = "{module}:video"
processes = 2
count = 1                       # transcodes at a time in each process
update = "1s"

[workers.video.options]
directory = "media"
threads = 1
"""

LOGGING: Final = """
[logging]                       # the demo goes on until Ctrl-C
file = "{name}.log"
max_size = "2MB"
keep = 1
"""

DASHBOARD: Final = """
[web.dashboard]
app = "peerd.web:app"
bind = "{bind}"

[schedules.{queue}-poster]
queue = "{queue}"
task = "poster"
body = {{source = "{piece}", output = "poster.jpg", replace = true}}
interval = "30s"
"""

PIECE: Final = "piece.mp4"
"""The short video that tasks are for while the dashboard is open."""


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """A node, and its master process."""

    name: str
    run_directory: Path
    log: Path
    process: subprocess.Popen[bytes]


@dataclass(slots=True)
class DemoSandbox:
    """The folder of a demo and its nodes; use `create`.

    Args:
        folder: the project.
        database: the URL of its database.
        queue: a new name for each demo, so that no other node of a shared database claims the tasks.
        is_removed: whether the folder is removed at the end.
    """

    folder: Path
    database: str
    queue: str
    is_removed: bool = False
    nodes: list[NodeProcess] = field(default_factory=list)

    @classmethod
    @contextmanager
    def create(cls, folder: Path | None, database: str | None, dashboard: str | None = None) -> Iterator[Self]:
        """Create the folder and its project; at the end, always stop the nodes.

        Args:
            folder: where the files stay; None: a new temporary folder.
            database: the URL of a database; None: an SQLite file in the folder.
            dashboard: what the dashboard of the first node listens on; None: it has none. With it, a temporary folder
                is removed at the end, except after an error, whose remedy may name the logs in it.
        """
        if folder is None:
            directory = Path(tempfile.mkdtemp(prefix="peerd-demo-"))
        else:
            directory = folder.absolute()
            directory.mkdir(parents=True, exist_ok=True)
        run_id = secrets.token_hex(3)
        url = database or f"sqlite:///{directory}/peerd-{run_id}.sqlite"
        sandbox = cls(directory, url, f"demo-{run_id}", is_removed=folder is None and dashboard is not None)
        try:
            sandbox._write_project(run_id, f"-{run_id}" if database else "", dashboard)
            yield sandbox
        except Exception:
            sandbox.is_removed = False
            raise
        finally:
            sandbox.stop()
            if sandbox.is_removed:
                shutil.rmtree(directory)

    @property
    def media(self) -> Path:
        """The media directory of both nodes."""
        return self.folder / "media"

    @property
    def dashboard_node(self) -> NodeProcess:
        """The node with the dashboard, if there is one."""
        return self.nodes[0]

    def start_nodes(self) -> None:
        """Start both nodes, and wait until all their processes are ready."""
        for config in sorted(self.folder.glob("demo-*.toml")):
            self.nodes.append(self._start(config))
        for node in self.nodes:
            self._wait_until_ready(node)

    def stop(self) -> None:
        """Stop the nodes; kill those that do not end in time. A signal meanwhile stops them without grace."""
        try:
            self._stop_nodes()
        except (KeyboardInterrupt, SystemExit):
            self._stop_nodes()

    def _stop_nodes(self) -> None:
        """Send each node a signal, and wait; a second signal ends its grace."""
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT
        for node in self.nodes:
            try:
                node.process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                node.process.send_signal(signal.SIGKILL)
                node.process.wait()

    def _write_project(self, run_id: str, suffix: str, dashboard: str | None) -> None:
        """Write the handlers, and a peerd.toml for each node; on a shared database the nodes' names are new too."""
        self.media.mkdir(exist_ok=True)
        module = f"demo_jobs_{run_id}"
        (self.folder / f"{module}.py").write_text(JOBS.format(queue=self.queue))
        for old in self.folder.glob("demo-*.toml"):
            old.unlink()
        for node in NODES:
            name = f"{node}{suffix}"
            text = CONFIG.format(name=name, module=module)
            if dashboard is not None:
                text += LOGGING.format(name=name)
                if node == NODES[0]:
                    text += DASHBOARD.format(bind=dashboard, queue=self.queue, piece=PIECE)
            (self.folder / f"{name}.toml").write_text(text)

    def _start(self, config: Path) -> NodeProcess:
        """Start a node that ends with the demo, and that Ctrl-C in the terminal does not reach."""
        log = config.with_suffix(".log")
        command = [sys.executable, "-m", "peerd", "up", "--config", str(config)]
        log.unlink(missing_ok=True)
        with log.open("ab") as out:  # a node that rotates its log appends to the same file
            process = subprocess.Popen(
                launch_command(command),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PEERD_DATABASE_URL": self.database},
                start_new_session=True,
            )
        return NodeProcess(config.stem, self.folder / config.stem, log, process)

    def _wait_until_ready(self, node: NodeProcess) -> None:
        for state in poll(lambda: _node_state(node), READY_TIMEOUT):
            if state == "running":
                return
            if node.process.poll() is not None:
                break
        last = node.log.read_text(errors="replace").strip().splitlines()[-5:]
        raise CommandError(f"node {node.name} did not start: {' | '.join(last)}", f"read {node.log}")


def _node_state(node: NodeProcess) -> str:
    try:
        return str(status(node.run_directory)["state"])
    except (MasterNotRunning, OSError):
        return "starting"
