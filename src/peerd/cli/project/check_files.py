"""Whether a node can write its files, and whether other users can read its database.

Writing is tried, since a mode does not show that a disk is read-only.
"""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from pathlib import Path

from peerd.cli.project.check_report import ConfigReport
from peerd.config import Settings
from peerd.config.address import is_sqlite
from peerd.config.problems import KeyPath
from peerd.store.connection.database import with_driver


def check_writable_paths(settings: Settings, report: ConfigReport) -> None:
    """Check the run directory, the log file and the embedded database."""
    problems: list[tuple[KeyPath, str]] = [(("node", "run_directory"), _folder_problem(settings.node.run_directory))]
    if settings.logging.file is not None:
        problems.append((("logging", "file"), _file_problem(settings.logging.file)))
    if is_sqlite(settings.database.url) and not report.has_problem_in("database"):
        file = Path(with_driver(settings.database.url).database or "")
        problems.append((("database", "url"), _file_problem(file, makes_folders=False)))
    for key_path, problem in problems:
        if problem:
            report.add_problem(key_path, problem, "choose a path that the user of the node may write to")


def check_privacy(file: Path, key_path: KeyPath, report: ConfigReport) -> None:
    """Warn of a database file that other users can read."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return
    if mode & 0o077:
        remedy = f"chmod go-rwx {shlex.quote(str(file))}*"
        report.add_warning(key_path, f"{file} can be read by other users (mode {mode:03o})", remedy)


def _file_problem(path: Path, *, makes_folders: bool = True) -> str:
    """Why a file cannot be written or created; empty if it can."""
    try:
        if path.exists():
            # It is not opened: closing it would release the locks of this process's SQLite connections on it.
            writable = path.is_file() and os.access(path, os.W_OK, effective_ids=True)
            return "" if writable else f"{path} cannot be written"
    except OSError as error:
        return f"{path} cannot be written: {_error_text(error)}"
    if not makes_folders and not path.parent.is_dir():
        return f"{path} cannot be created: there is no folder {path.parent}"
    return _folder_problem(path.parent, path)


def _folder_problem(folder: Path, path: Path | None = None) -> str:
    """Why nothing can be created in a folder, which may not exist yet; empty if it can."""
    existing = next(one for one in (folder, *folder.parents) if _exists(one))
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"{path or folder} cannot be created: {existing}: {_error_text(error)}"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # it exists, but may not be read
        return True


def _error_text(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
