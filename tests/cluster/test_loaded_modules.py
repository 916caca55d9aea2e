"""What the processes of a node load: little, and never a user's file in place of a module of the standard library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from peerd.runtime.process import exit_codes
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow

NOT_LOADED = {
    "alembic", "difflib", "http.client", "httpx", "pydantic", "pydantic_core", "rich", "smtplib", "tomllib", "typer",
    "urllib.request", "watchfiles", "sqlalchemy.ext.asyncio", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql",
    "psycopg", "pymysql",
    "peerd.cli", "peerd.config.loading", "peerd.operate.remote",
    "peerd.operate.wire", "peerd.supervision", "peerd.testing",
}  # fmt: skip
"""By no process of a node on SQLite, as long as a user's code does not."""
SHADOWED = ("queue", "logging", "types", "json", "socket", "select", "enum", "signal", "random", "uuid", "asyncio")
"""All of them are used by every process, and one is a package."""
BROKEN = "raise RuntimeError(f'{__name__} of the project was imported in place of the standard library')\n"
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

from helpers.words import greeting

lean = Queue("lean")

@lean.task
async def greet() -> str:
    import queue, logging, types, json

    return f"{greeting} {queue.Queue.__module__} {logging.Logger.__module__}"

@lean.task(process=True)
def greet_apart() -> str:
    import queue

    return f"{greeting} {queue.Queue.__module__}"

class Periodic(Worker):
    async def loop(self):
        pass

async def app(scope, receive, send):
    pass

def setup(agent):
    pass
"""


@pytest.fixture
def project(cluster: Cluster) -> Cluster:
    """A cluster whose project has files with the standard library's names, a module and a package of its own."""
    for name in SHADOWED:
        (cluster.folder / f"{name}.py").write_text(BROKEN)
    (cluster.folder / "helpers").mkdir()
    (cluster.folder / "helpers/__init__.py").touch()
    (cluster.folder / "helpers/words.py").write_text("greeting = 'hello'\n")
    (cluster.folder / "lean.py").write_text(CODE)
    cluster.command = [str(Path(sys.executable).parent / "peerd")]
    return cluster


def test_no_process_of_a_node_loads_what_it_does_not_use_or_a_file_named_like_the_standard_library(
    project: Cluster, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "sitecustomize.py").write_text(NOTE)
    project.environment |= {"PYTHONPATH": str(notes), "NOTES": str(notes)}
    node = project.node(
        "one",
        manager={"max_update": "30s"},
        workers={"periodic": {"worker": "lean:Periodic"}, "tasks": {"tasks": "lean:lean"}},
        sections={
            "agent": {"setup": "lean:setup"},
            "alerts.web": {"webhook": "http://127.0.0.1:1/"},
            "schedules.tick": {"run": "lean:setup", "interval": "1h"},
            "web.site": {"app": "lean:app", "bind": "unix:site.sock"},
            "gateway.queue": {"bind": "unix:queue.sock"},
            "workers.video": {"tasks": "peerd.workers.video:video"},
            "workers.video.options": {"directory": str(project.folder)},
        },
    ).up()

    def run(name: str) -> object:
        return project.client.enqueue("lean", name=name).result(timeout=120)

    assert run("greet") == "hello queue logging"
    assert run("greet_apart") == "hello queue"
    (project.folder / "helpers/words.py").write_text("greeting = 'good bye'\n")
    node.reload("tasks")
    assert run("greet") == "good bye queue logging"
    assert node.stop() == exit_codes.OK
    loaded = {file.name: set(file.read_text().splitlines()) for file in notes.glob("*-1")}
    loaded |= {name: set((notes / name).read_text().splitlines()) for name in ("agent", "manager")}
    assert loaded.keys() == {"agent", "manager", "periodic-1", "tasks-1", "site-1", "queue-1", "video-1"}
    for slot, modules in loaded.items():
        assert "peerd.store.schema.tables" in modules
        assert modules & NOT_LOADED == set(), slot


def test_the_command_line_works_beside_files_named_like_the_standard_library(project: Cluster) -> None:
    def check(*command: str) -> tuple[int, str]:
        answer = subprocess.run([*command, "check"], cwd=project.folder, capture_output=True, text=True, check=False)
        return answer.returncode, " ".join((answer.stdout + answer.stderr).split())

    config = project.folder / "peerd.toml"
    config.write_text("[workers.own]\ntasks = 'queue:own'\n")
    status, text = check(*project.command)
    assert (status, "queue is a module of the standard library" in text) == (1, True), text
    config.write_text(f"[database]\nurl = '{project.url}'\n[workers.own]\ntasks = 'lean:lean'\n")
    for name in ("types", "enum"):  # `python -m` itself, of any module, imports these
        (project.folder / f"{name}.py").unlink()
    for command in (project.command, [sys.executable, "-m", "peerd"]):
        status, text = check(*command)
        assert (status, "handles greet, greet_apart" in text) == (0, True), text
