"""`impatient`: a node that does not answer is waited for no longer than the time that the request gives it."""

from __future__ import annotations

import pytest


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("node_requests", "nodes", "tasks"):
        monkeypatch.setattr(f"peerd.operate.{module}.ANSWER_MARGIN", 0.0)
