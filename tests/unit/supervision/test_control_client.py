from __future__ import annotations

import os
from pathlib import Path

import pytest

from peerd.supervision.control import control_client
from peerd.supervision.host.node_lock import node_lock
from tests.support.rows import rows


@rows("folder", ["", "missing"])
def test_a_folder_without_a_master_reports_it(tmp_path: Path, folder: str) -> None:
    with pytest.raises(control_client.MasterNotRunning, match="no node is running in"):
        control_client.status(tmp_path / folder)
    with pytest.raises(control_client.MasterNotRunning):
        control_client.stop(tmp_path / folder)


@rows("pid", ["ours", "1", "999999999", "none", "-1", ""])
def test_a_pid_file_of_another_process_names_no_master(tmp_path: Path, pid: str) -> None:
    (tmp_path / "master.pid").write_text(f"{os.getpid() if pid == 'ours' else pid}\n")
    (tmp_path / "lock").touch()
    assert control_client.find_running_master(tmp_path) is None
    with pytest.raises(control_client.MasterNotRunning):
        control_client.stop(tmp_path)


def test_the_master_that_holds_the_lock_is_named(tmp_path: Path) -> None:
    with node_lock(tmp_path):
        assert control_client.find_running_master(tmp_path) == os.getpid()
    assert control_client.find_running_master(tmp_path) is None
