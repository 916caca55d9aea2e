"""`clock`, and no record of what ran before."""

from __future__ import annotations

import pytest

from peerd.testing import Clock
from tests.testing.mail import ran


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()
