"""Which tests of a run stay together in one of xdist's processes.

What a module boots once (nodes of a cluster, on each database) is booted once for the run only if its tests stay
together; everything else goes to whichever process is free, a test at a time, and quick tests by the file.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARING = ("tests/cluster/test_doorbell.py",)
"""Files whose tests share what they boot, those of each database among themselves."""
QUICK = ("tests/unit/", "src/", "docs/")
_KIND = re.compile(r"\[(sqlite|mariadb|postgresql)")


class KeepTogether(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out tests by what `together` says."""

    def _split_scope(self, nodeid: str) -> str:
        return together(nodeid)


def together(nodeid: str) -> str:
    """What the tests that stay together have in common.

    >>> together("tests/unit/domain/test_size.py::test_a")
    'tests/unit/domain/test_size.py'
    >>> together("tests/cluster/test_doorbell.py::test_a[mariadb]")
    'tests/cluster/test_doorbell.py mariadb'
    >>> together("tests/cluster/test_crashes.py::test_a[mariadb]")
    'tests/cluster/test_crashes.py::test_a[mariadb]'
    """
    file = nodeid.partition("::")[0]
    if file.startswith(QUICK):
        return file
    kind = _KIND.search(nodeid)
    return f"{file} {kind[1]}" if file in SHARING and kind else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> KeepTogether:
    return KeepTogether(config, log)
