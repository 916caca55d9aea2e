"""Which tests of a run stay together in one of xdist's processes, and which come first.

The tests of a file and a database stay together, since what a module boots (a node, a served API, a browser) is then
booted once for the run. A few long tests go to whichever process is free. Folders whose tests wait longest come first,
so that no process is busy alone at the end.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.tiers import FOLDERS, folder_of

SHARED_FOLDERS = ("tests/pages/live/",)
SINGLE_FOLDERS = ("tests/faults/", "tests/simulation/", "tests/upgrade/", "tests/demo/", "tests/bench/")
"""Folders whose tests share nothing, and take long."""
SLOW_SERVERS = ("swift",)
_KIND = re.compile(r"\[(sqlite|mariadb|postgresql|mysql)")


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """What the tests that stay together have in common."""
    file = nodeid.partition("::")[0]
    if file.startswith(SHARED_FOLDERS):
        return str(Path(file).parent)
    if file.startswith(SINGLE_FOLDERS):
        return nodeid
    for server in SLOW_SERVERS:
        if f"[{server}" in nodeid:
            return server
    kind = _KIND.search(nodeid)
    return f"{file} {kind[1]}" if kind else file


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {folder: place for place, folder in enumerate(FOLDERS)}
    items.sort(key=lambda item: order.get(folder_of(item.nodeid), len(order)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    return GroupScheduling(config, log)
