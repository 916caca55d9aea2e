"""A test that sets up the log leaves it as it was: the streams of the next test are others, and its own are closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _same_structlog() -> Iterator[None]:
    was_configured, before = structlog.is_configured(), structlog.get_config()
    yield
    if structlog.get_config() == before:
        return
    if was_configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()
