from __future__ import annotations

from collections.abc import Iterator

import pytest

from peerd.operate.client import Client
from peerd.store.schema.migrate import migrate
from tests.unit.operate.claiming_process import ClaimingProcess


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        migrate(client.database)
        yield client


@pytest.fixture
def holder(client: Client) -> ClaimingProcess:
    return ClaimingProcess(client.database)
