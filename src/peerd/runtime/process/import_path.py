"""Where a process finds the project's modules: after the standard library, before installed packages.

Before the standard library, a project's ``queue.py`` or ``logging.py`` would be imported by every library that wants
the standard one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

STANDARD_LIBRARY: Final = os.path.dirname(os.__file__)  # noqa: PTH120 - pathlib costs a process's start


def add_project_folder(folder: str) -> None:
    """Let the project's modules be imported."""
    sys.path.insert(project_position(sys.path, STANDARD_LIBRARY), folder)


def project_position(path: Sequence[str], standard_library: str) -> int:
    """Where the project's folder belongs: behind the last folder of the standard library.

    >>> project_position(["/lib/python311.zip", "/lib/python3.11", "/lib/python3.11/lib-dynload", "/site-packages"],
    ...          "/lib/python3.11")
    3
    >>> project_position(["/somewhere"], "/lib/python3.11")
    1
    """
    standard = {standard_library, f"{standard_library}/lib-dynload"}
    found = [number for number, folder in enumerate(path) if folder in standard]
    return found[-1] + 1 if found else len(path)
