"""`history_builder`: a hand-made history, and the tables that go with it."""

from __future__ import annotations

import pytest

from tests.faults.history_builder import HistoryBuilder

collect_ignore = ["plot.py"]
"""It has no examples, and matplotlib takes a second to load."""


@pytest.fixture
def history_builder() -> HistoryBuilder:
    return HistoryBuilder()
