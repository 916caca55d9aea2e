"""The archive: one command loses a node with its disk, and finds every file again."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.examples.project import EXAMPLES

FILES = 61


@pytest.mark.slow
def test_every_file_is_whole_after_a_node_and_its_disk_were_lost() -> None:
    command = [sys.executable, "run.py"]
    run = subprocess.run(command, cwd=EXAMPLES / "archive", capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{FILES} files are equal, 0 differ, 0 are missing" in run.stdout
    lost = re.search(r"(\d+) of 61 files have one copy left", run.stdout)
    assert lost is not None
    assert int(lost[1]) > 0, "node c had no file, so nothing was shown"
    assert run.stdout.rstrip().endswith(f"{FILES} files on a and b")
