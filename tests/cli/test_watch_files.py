"""`peerd up --watch`, for development."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cli.conftest import Peerd

TOML = '[node]\nname = "here"\n[workers.hello]\ntasks = "jobs:hello"\n'
WITHIN = 60.0


def slots_of(run_directory: Path) -> dict[str, Any]:
    return {slot["name"]: slot for slot in control_client.status(run_directory)["slots"]}


@pytest.mark.slow
def test_what_runs_changed_code_is_replaced_and_a_changed_configuration_is_followed(
    peerd: Peerd, tmp_path: Path
) -> None:
    peerd("init", ".")
    (tmp_path / "peerd.toml").write_text(TOML)
    run_directory = tmp_path / ".peerd" / "here"
    with (tmp_path / "log").open("w") as log:
        node = subprocess.Popen([sys.executable, "-m", "peerd.cli", "up", "--watch"], stderr=log, stdout=log)
    try:
        eventually(lambda: "ready: 4 processes" in (tmp_path / "log").read_text(), timeout=WITHIN)
        before = slots_of(run_directory)

        (tmp_path / "jobs.py").write_text((tmp_path / "jobs.py").read_text() + "\n")
        eventually(lambda: slots_of(run_directory)["hello-1"]["generation"] == 2, timeout=WITHIN)
        assert slots_of(run_directory)["agent"]["pid"] == before["agent"]["pid"]
        assert slots_of(run_directory)["watcher"]["pid"] == before["watcher"]["pid"]

        (tmp_path / "jobs.py").rename(tmp_path / "jobs.txt")
        eventually(lambda: "the old processes stay" in (tmp_path / "log").read_text(), timeout=WITHIN)
        (tmp_path / "jobs.txt").rename(tmp_path / "jobs.py")

        (tmp_path / "peerd.toml").write_text(TOML + "processes = 2\n")
        eventually(lambda: "hello-2" in slots_of(run_directory), timeout=WITHIN)
        assert node.poll() is None
    finally:
        node.send_signal(signal.SIGTERM)
        assert node.wait(WITHIN) == 0


def test_without_watchfiles_the_error_names_the_package(
    peerd: Peerd, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert "pip install 'peerd[watch]'" in peerd("up", "--watch", status=1).err
