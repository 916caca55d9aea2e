"""A studio for browsers: two real nodes with a dashboard, and tasks of every status, some of them running."""

from __future__ import annotations

import contextlib
import io
import math
import random
import shutil
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from peerd import Client, Right
from peerd.domain.attempt_totals import AttemptTotals, Histogram
from peerd.domain.errors import ScheduleNotFound
from peerd.domain.lifecycle import Status
from peerd.storage.disk.identity import create_disk
from peerd.store.attempt_series import BucketRow, write_buckets
from peerd.store.files.disks import cluster_identity
from peerd.store.schema.tables import depths
from peerd.store.time_series import MINUTE, SAMPLE, bucket_start
from peerd.supervision import control_client
from peerd.testing import eventually
from tests.cluster.cluster import Cluster, ClusterNode
from tests.support.server import free_port

JOBS = Path(__file__).parent / "studio_jobs.py"
WITHIN = 60.0
FINISHED = 40
FAILED = 6
RUNNING = 5


class Studio:
    """The cluster in a folder, its dashboard's address, and tasks of a known kind."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, f"sqlite:///{folder}/peerd.sqlite")
        shutil.copy(JOBS, folder / JOBS.name)
        self.client: Client = self.cluster.client
        dashboard = {"web.dashboard": {"app": "peerd.web:app", "bind": "127.0.0.1:0"}}
        self.first, self.second = self._node(1, dashboard), self._node(2, {})

    def up(self) -> Studio:
        """Start the nodes and fill the tables."""
        for node in self.cluster.nodes:
            node.start()
        for node in self.cluster.nodes:
            node.wait_until_running()
        self.fill()
        self.fill_disks()
        self.token = self.client.tokens.create("studio", list(Right)).secret
        return self

    @property
    def address(self) -> str:
        """The URL of the dashboard."""
        sockets = control_client.status(self.first.run_directory)["sockets"]
        [socket] = [one for one in sockets if one["bind"] == "127.0.0.1:0"]
        return f"http://{socket['addresses'][0]}"

    def fill(self) -> None:
        """Tasks of every status, and wait until they are there."""
        enqueue = self.client.enqueue
        for number in range(FINISHED):
            enqueue("video", name="probe", body={"source": f"clip-{number:03}.mov"})
        for number in range(FAILED):
            enqueue("video", name="upload", body={"source": f"reel-{number}.mov"})
            enqueue("mail", name="notify", body={"to": f"editor-{number}@studio.example"})
        self._enqueue_films()
        enqueue("video", name="transcode", body={"source": "trailer.mov", "seconds": 4})
        for number in range(30):
            enqueue("archive", name="store", body={"source": f"clip-{number:03}.mp4"}, limit_key=f"disk-{number % 3}")
        for number in range(8):
            enqueue("video", name="probe", body={"source": f"later-{number}.mov"}, start_in="2h")
        canceled, buried = (
            enqueue("mail", name="notify", body={"to": "old@studio.example"}, start_in="1h") for _ in "ab"
        )
        self.client.tasks.cancel(canceled.id, "the film was withdrawn")
        self.client.tasks.bury(buried.id)
        self.client.limits.set("video", running=8)
        self.client.limits.set("archive", running=2, each_key=True)
        eventually(self._is_filled, timeout=WITHIN, message=self.cluster.describe)

    def fill_disks(self) -> None:
        """A disk on each node, and files of which both have a copy."""
        client = self.client
        identity = client.database.run(cluster_identity)
        for number in (1, 2):
            path = self._disk_path(number)
            path.mkdir()
            client.disks.register(create_disk(path, identity).disk, path=str(path), node=f"studio-{number}")
        client.buckets.create("films", quota="2GB")
        client.buckets.create("rushes")
        eventually(self._are_disks_online, timeout=WITHIN, message=self.cluster.describe)
        for number in range(1, 9):
            content = random.Random(number).randbytes(40_000 * number**2)
            client.files.put(io.BytesIO(content), f"films/2026/scene-{number:02}.mov", content_type="video/quicktime")
        client.files.put(io.BytesIO(b"scenes"), "films/readme.txt", content_type="text/plain")
        eventually(self._are_whole, timeout=WITHIN, message=self.cluster.describe)

    def _disk_path(self, number: int) -> Path:
        return self.cluster.folder / f"disk-{number}"

    def _are_disks_online(self) -> bool:
        return {disk.condition for disk in self.client.files.overview().disks} == {"online"}

    def _are_whole(self) -> bool:
        return {file.health for file in self.client.files.kept("films", "2026/").files} == {"whole"}

    def restore(self) -> None:
        """Take back what other tests have changed of nodes, queues and schedules; and let as many tasks run again."""
        client = self.client
        client.nodes.undrain("studio-2")
        for queue in client.queues.list():
            if queue.paused:
                client.queues.resume(queue.name)
        client.schedules.enable("weekly")
        client.limits.remove("shelf")
        with contextlib.suppress(ScheduleNotFound):
            client.schedules.delete("nightly")
        self._enqueue_films()
        eventually(lambda: self._count(Status.WORKING) >= RUNNING, timeout=WITHIN)

    def write_past(self) -> None:
        """Figures of the last hour, as a busy studio would have them, so that charts have lines."""
        present = bucket_start(self.client.now(), MINUTE)
        node_id = self.client.nodes.get("studio-1").id
        buckets, samples = [], []
        for number in range(1, 60):
            at = present - timedelta(minutes=number)
            load = 1 + math.sin(number / 9) * 0.6 + (number % 7) / 20
            for queue, name, scale, failed in (("video", "probe", 40, 1), ("mail", "notify", 15, 2)):
                run = Histogram.of([0.02 * scale * load] * 5 + [0.1 * scale * load])
                wait = Histogram.of([0.01 * load] * 8 + [0.3 * load])
                outcomes = {"done": round(scale * load), "failed": failed if 18 < number < 26 else 0}
                totals = AttemptTotals(outcomes, 30 * load, wait, run)
                buckets.append(BucketRow(MINUTE, at, queue, name, node_id, 0, totals))
            for status, count in (("pending", 90 * load), ("working", 7), ("scheduled", 8)):
                samples.append({"step": SAMPLE, "at": at, "queue": "", "status": status, "count": round(count)})
        self.client.database.run(write_buckets, buckets)
        self.client.database.run(sa.Connection.execute, sa.insert(depths), samples)

    def task_of(self, kind: str) -> int:
        """A task that is running, failed, dead or done."""
        status = {"running": Status.WORKING, "failed": Status.FAILURE}.get(kind) or Status(kind)
        return self.client.tasks.list(status=status, limit=1)[0].id

    def close(self) -> None:
        """Stop the nodes at once; the test fails if a process is left."""
        left = self.cluster.clean_up()
        assert not left, f"processes were left behind: {left}"

    def _node(self, number: int, sections: dict[str, dict[str, str]]) -> ClusterNode:
        disks = [str(self._disk_path(number))]
        storage = {"disks": disks, "bind": f"127.0.0.1:{free_port()}", "grace": "1m"}
        tasks = ["studio_jobs:video", "studio_jobs:mail"]
        worker = {"tasks": tasks, "processes": 2, "count": 4, "update": "500ms", "poll_every": "200ms"}
        schedule = {"queue": "mail", "task": "notify", "cron": "0 7 * * 1"}
        return self.cluster.node(
            f"studio-{number}",
            manager={"max_update": "10s"},  # the workers of storage touch their tasks every 3 s
            workers={"video": worker},
            sections={"storage": storage, **sections},
            schedules={"weekly": schedule},
        )

    def _enqueue_films(self) -> None:
        """Tasks that run for long, where they do not run yet."""
        for number in range(RUNNING):
            body, name = {"source": f"film-{number}.mov", "seconds": 600}, f"film-{number}"
            self.client.enqueue("video", name="transcode", body=body, unique=name, priority=10 * number)

    def _count(self, status: Status) -> int:
        return len(self.client.tasks.list(status=status, limit=500))

    def _is_filled(self) -> bool:
        wanted = {Status.DONE: FINISHED + 1, Status.DEAD: FAILED, Status.FAILURE: FAILED, Status.WORKING: RUNNING}
        return all(self._count(status) >= count for status, count in wanted.items())
