"""Which tests of a run stay together in one of xdist's processes.

What a module boots once (nodes of a cluster, on each database) is booted once for the run only if its tests stay
together; everything else goes to whichever process is free, a test at a time, and quick tests by the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

GROUPED_FILES = ("tests/cluster/test_doorbell.py",)
"""Files whose tests share what they boot, those of each database among themselves."""
SHARED_FOLDERS = ("tests/pages/live/",)
"""Folders whose tests share what they boot."""
SLOW_SERVERS = ("swift",)
"""Parameters that stand for a server which takes long to boot: one for the run."""
QUICK_FOLDERS = ("tests/unit/", "src/", "docs/")
_KIND = re.compile(r"\[(sqlite|mariadb|postgresql)")


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Distributes tests by `group_of`."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """What the tests that stay together have in common.

    >>> group_of("tests/unit/domain/test_size.py::test_a")
    'tests/unit/domain/test_size.py'
    >>> group_of("tests/cluster/test_doorbell.py::test_a[mariadb]")
    'tests/cluster/test_doorbell.py mariadb'
    >>> group_of("tests/cluster/test_crashes.py::test_a[mariadb]")
    'tests/cluster/test_crashes.py::test_a[mariadb]'
    >>> group_of("tests/storage/object_disk/test_disk.py::test_a[swift-100]")
    'swift'
    """
    file = nodeid.partition("::")[0]
    if file.startswith(SHARED_FOLDERS):
        return str(Path(file).parent)
    if file.startswith(QUICK_FOLDERS):
        return file
    for server in SLOW_SERVERS:
        if f"[{server}" in nodeid:
            return server
    kind = _KIND.search(nodeid)
    return f"{file} {kind[1]}" if file in GROUPED_FILES and kind else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    return GroupScheduling(config, log)
