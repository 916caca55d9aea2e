"""Fixtures: a catalogue on each database."""

from __future__ import annotations

import pytest

from peerd.store.connection.database import Database
from tests.store.conftest import kept_stores as kept_stores  # noqa: PLC0414 - pytest finds fixtures by their names here
from tests.store.conftest import store as store  # noqa: PLC0414
from tests.store.file_steps import Catalogue


@pytest.fixture
def catalogue(store: Database) -> Catalogue:
    return Catalogue(store)
