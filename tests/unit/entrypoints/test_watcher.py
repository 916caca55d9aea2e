from __future__ import annotations

from pathlib import Path

from peerd.entrypoints.watcher import WatchedFiles
from tests.support.rows import rows

FOLDER = Path("/srv/.work/venv/studio")
"""Folders above the project do not matter."""


@rows("file, matters", [
    ("jobs.py", True), ("studio/deep/in/jobs.py", True), ("peerd.toml", True), ("other.toml", False),
    ("jobs.pyc", False), ("peerd.sqlite-wal", False), ("__pycache__/jobs.py", False),
    (".venv/lib/python3.11/site-packages/it.py", False), ("venv/it.py", False), (".peerd/here/it.py", False),
    ("node_modules/gyp/it.py", False), ("/elsewhere/it.py", False),
])  # fmt: skip
def test_code_and_configuration_are_watched_and_files_of_other_programs_are_not(*, file: str, matters: bool) -> None:
    assert WatchedFiles(FOLDER, FOLDER / "peerd.toml")(None, str(FOLDER / file)) == matters


def test_a_configuration_in_another_folder_is_watched_too() -> None:
    watched_files = WatchedFiles(FOLDER, Path("/etc/peerd.toml"))
    assert watched_files(None, "/etc/peerd.toml")
    assert not watched_files(None, "/etc/it.py")
    assert watched_files.folders == {FOLDER, Path("/etc")}
