"""What the processes of a node load: the less, the sooner they are there, and the more of them fit into a machine."""

from __future__ import annotations

import pytest

from peerd.runtime.process import exit_codes
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN
from tests.cluster.conftest import MakeCluster

NOT_LOADED = {
    "alembic", "difflib", "http.client", "httpx", "pydantic", "pydantic_core", "rich", "smtplib", "tomllib", "typer",
    "urllib.request", "watchfiles", "sqlalchemy.ext.asyncio", "sqlalchemy.orm",
    "peerd.cli", "peerd.config.reading.loading", "peerd.config.reading.models", "peerd.operate.remote",
    "peerd.operate.wire", "peerd.supervision", "peerd.testing",
}  # fmt: skip
"""By no process of a node, as long as a user's code does not."""
OF_DATABASES = {"postgresql": {"sqlalchemy.dialects.postgresql", "psycopg"}, "sqlite": {"sqlalchemy.dialects.sqlite"}}
NOTE = """\
import atexit, os, sys

def note():
    with open(os.path.join(os.environ["NOTES"], name.split("/")[1]), "w") as file:
        file.write("\\n".join(list(sys.modules)))

if name := os.environ.get("PEERD_PROCESS"):
    atexit.register(note)
"""
CODE = """\
from peerd import Queue, Worker

queue = Queue("lean")

@queue.task
async def run(number: int) -> int:
    return number

class Periodic(Worker):
    async def loop(self):
        pass

async def app(scope, receive, send):
    pass

def setup(agent):
    pass
"""


@pytest.mark.slow
def test_no_process_of_a_node_loads_what_it_does_not_use(make_cluster: MakeCluster, migrated_database: str) -> None:
    cluster = make_cluster(migrated_database)
    notes = cluster.folder / "notes"
    notes.mkdir()
    (cluster.folder / "sitecustomize.py").write_text(NOTE)
    (cluster.folder / "lean.py").write_text(CODE)
    cluster.environment |= {"PYTHONPATH": str(cluster.folder), "NOTES": str(notes)}
    node = cluster.node(
        "one",
        manager={"max_update": "30s"},
        workers={"periodic": {"worker": "lean:Periodic"}, "tasks": {"tasks": "lean:queue"}},
        sections={
            "agent": {"setup": "lean:setup"},
            "alerts.web": {"webhook": "http://127.0.0.1:1/"},
            "schedules.tick": {"run": "lean:setup", "interval": "1h"},
            "web.site": {"app": "lean:app", "bind": "unix:site.sock"},
            "gateway.queue": {"bind": "unix:queue.sock"},
            "workers.video": {"tasks": "peerd.workers.video:video"},
            "workers.video.options": {"directory": str(cluster.folder)},
        },
    ).up()
    job = cluster.client.enqueue("lean", name="run", body={"number": 7})
    eventually(lambda: cluster.client.tasks.get(job.id).status == "done", timeout=WITHIN, message=node.log_text)
    assert node.stop() == exit_codes.OK
    loaded = {file.name: set(file.read_text().splitlines()) for file in notes.iterdir()}
    assert loaded.keys() == {"agent", "manager", "periodic-1", "tasks-1", "site-1", "queue-1", "video-1"}
    others = set().union(*(modules for kind, modules in OF_DATABASES.items() if kind not in cluster.url))
    for slot, modules in loaded.items():
        assert "peerd.store.schema.tables" in modules
        assert modules & (NOT_LOADED | others) == set(), slot
