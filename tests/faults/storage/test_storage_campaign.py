"""Campaigns: four nodes with storage, clients, and a minute of faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import history
from tests.faults.storage import storage_campaign
from tests.faults.storage.storage_campaign import StoragePlan
from tests.faults.storage.system_calls import can_fail
from tests.support.server import ServerUnavailableError
from tests.support.servers import DATABASES
from tests.support.summary import note_database, note_missing_server

SEED = 11


@pytest.mark.slow
@pytest.mark.one_database
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", DATABASES)
def test_whatever_dies_no_acknowledged_file_is_lost(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv(history.VARIABLE, str(tmp_path / "history"))
    plan = StoragePlan(kind=kind, seconds=60.0 if kind == "sqlite" else 40.0, seed=SEED)
    try:
        result = storage_campaign.run(plan, tmp_path)
    except ServerUnavailableError as error:
        note_missing_server(request.node, kind)
        pytest.skip(f"NOT TESTED on {kind}: {error}")
    note_database(request.node, kind)
    words = result.words()
    print(words)  # noqa: T201 - pytest shows it with a failure
    assert not result.problems, words
    assert result.counts["put: acknowledged"] >= 8, words
    assert result.counts["good copies"] >= 16, words
    assert result.faults["lost disk"], words
    assert result.faults["lost file"], words
    assert any(name.startswith("damage") for name in result.faults), words
    assert kind == "sqlite" or not can_fail() or any(name.startswith("EIO") for name in result.faults), words
    assert any(name.startswith("kill storage") for name in result.faults), words
