"""`script`: a hand-made history, and the tables that go with it."""

from __future__ import annotations

import pytest

from tests.faults.history_builder import Script


@pytest.fixture
def script() -> Script:
    return Script()
