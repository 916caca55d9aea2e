"""What a run of tests imports is compiled once, also where PYTHONDONTWRITEBYTECODE is set.

A test of a real node starts a handful of interpreters, and each would compile all of peerd that it imports: nearly half
of the processor time of its boot. So the package is compiled when a run begins, and tests and plugins when xdist's
processes load them. What a test writes for the processes that it starts is compiled anew by each of them: two versions
of a file that were written within one second look the same to a Python that keeps bytecode.
"""

from __future__ import annotations

import compileall
import os
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "peerd"
VARIABLE = "PYTHONDONTWRITEBYTECODE"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(PACKAGE, quiet=2)  # what cannot be written is compiled where it is imported
    os.environ.pop(VARIABLE, None)  # of xdist's processes, which this one starts
    sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    """Tests begin."""
    os.environ[VARIABLE] = "1"
    sys.dont_write_bytecode = True
