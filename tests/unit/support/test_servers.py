"""The fixtures of databases: real servers, empty databases, removed afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from peerd.testing import eventually
from tests.support.servers import DatabaseFactory

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_aborted_test_run_leaves_no_server_behind(
    number: signal.Signals,
    tmp_path: Path,
    database_factory: DatabaseFactory,
) -> None:
    """An inner pytest -n 2 is ended while both of its servers run: they end, and their folder is removed."""
    for kind in ("mariadb", "postgresql"):
        database_factory(kind)  # skips this test where there is none
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.support.servers"]\n')
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            f"""
            import os, signal, pathlib, pytest
            @pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
            def test_it(kind, database_factory):
                database_factory(kind)
                pathlib.Path({str(tmp_path)!r}, kind).write_text(os.environ["PEERD_TEST_RUN_FOLDER"])
                signal.pause()
            """,
        ),
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PEERD"))}
    options = ["-n2", "-p", "no:cacheprovider", "-v", "--every-database", f"--rootdir={tmp_path}"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    with (tmp_path / "output").open("w") as output:
        inner = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
        )
    marks = [tmp_path / "mariadb", tmp_path / "postgresql"]
    try:
        eventually(
            lambda: inner.poll() is not None or all(mark.exists() for mark in marks),
            timeout=200,  # two interpreters and two servers, perhaps on a busy machine
            message=(tmp_path / "output").read_text,
        )
        assert inner.poll() is None, (tmp_path / "output").read_text()
        folder = Path(eventually(marks[0].read_text))
        workers = psutil.Process(inner.pid).children()
        assert processes_of(folder)
    except BaseException:
        inner.kill()
        inner.wait()
        raise
    inner.send_signal(number)
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            worker.kill()  # it waits in signal.pause, and the run would wait for it
    inner.wait(120)
    eventually(lambda: not processes_of(folder) and not folder.exists(), timeout=60)


def processes_of(folder: Path) -> list[list[str]]:
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if any(str(folder) in word for word in line)]
