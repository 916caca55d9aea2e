from __future__ import annotations

from collections.abc import Iterator

import pytest

from peerd.operate.client import Client
from tests.unit.operate.claiming_process import ClaimingProcess


@pytest.fixture
def client(migrated_database: str) -> Iterator[Client]:
    with Client(migrated_database) as client:
        yield client


@pytest.fixture
def holder(client: Client) -> ClaimingProcess:
    return ClaimingProcess(client.database)
