from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from peerd.supervision.control import control_client
from peerd.supervision.host.node_lock import node_lock


def test_a_folder_without_a_master_reports_it(tmp_path: Path) -> None:
    for folder, ask in product((tmp_path, tmp_path / "missing"), (control_client.status, control_client.stop)):
        with pytest.raises(control_client.MasterNotRunning, match="no node is running in"):
            ask(folder)


def test_the_master_that_holds_the_lock_is_named_and_no_other_process_of_a_pid_file(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    for pid in (os.getpid(), 1, 999999999, "none", -1, ""):
        (tmp_path / "master.pid").write_text(f"{pid}\n")
        assert control_client.find_running_master(tmp_path) is None
        with pytest.raises(control_client.MasterNotRunning):
            control_client.stop(tmp_path)
    with node_lock(tmp_path):
        assert control_client.find_running_master(tmp_path) == os.getpid()
    assert control_client.find_running_master(tmp_path) is None
