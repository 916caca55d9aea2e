"""`history_builder`: a hand-made history, and the tables that go with it."""

from __future__ import annotations

import pytest

from tests.faults.history_builder import HistoryBuilder


@pytest.fixture
def history_builder() -> HistoryBuilder:
    return HistoryBuilder()
