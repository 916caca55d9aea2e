"""What docs/gateway.md shows works: its programs, and its sections of peerd.toml."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd import TaskWorker
from peerd.config import check
from peerd.store.connection.database import Database
from peerd.store.schema.migrate import migrate
from tests.gateway.gateway_thread import GatewayThread

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
PROGRAM, WORKER = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SECTIONS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayThread]:
    database = Database(f"sqlite:///{tmp_path / 'gateway.sqlite'}")
    migrate(database)
    with GatewayThread(database) as gateway:
        yield gateway
    database.close()


def test_the_first_steps(gateway: GatewayThread, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.replace("11300", str(gateway.address[1])))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("to: you\n", 0), done.stderr


def test_the_worker_of_the_page_takes_its_queue() -> None:
    names: dict[str, object] = {}
    exec(compile(WORKER, "jobs.py", "exec"), names)
    mails = names["Mails"]
    assert isinstance(mails, type)
    assert issubclass(mails, TaskWorker)
    assert tuple(mails.queues) == ("mails",)


def test_the_sections_of_the_page_are_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "peerd.toml"
    path.write_text("\n".join(SECTIONS))
    found = check(path, {})
    assert (found.problems, found.warnings) == ([], [])
    assert found.settings is not None
    assert (found.settings.queues["mails"].history, found.settings.gateway["queue"].processes) == (604_800.0, 1)
