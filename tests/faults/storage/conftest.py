"""Fixtures: three nodes with a disk each in this process, and a process that is killed in their place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.storage.crash_process import CrashProcess, crash_process
from tests.storage.conftest import cluster as cluster  # noqa: PLC0414 - pytest finds fixtures by their names here
from tests.storage.conftest import one_catalogue as one_catalogue  # noqa: PLC0414
from tests.store.conftest import kept_stores as kept_stores  # noqa: PLC0414


@pytest.fixture(scope="module")
def crash() -> Iterator[CrashProcess]:
    with crash_process() as process:
        yield process
