"""PostgreSQL's timestamps that Python's datetime cannot hold: infinity, years BC and after 9999.

SQL can write them; psycopg refuses to read them, and with them every row of the same result.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader

from peerd.store.schema.types import MAX_TIMESTAMP, MIN_TIMESTAMP

MAX_CACHED: Final = 1000
"""Timestamps of one statement."""
TIMESTAMPTZ = psycopg.adapters.types["timestamptz"].oid


class LenientTimestampLoader(Loader):
    """psycopg's loader, with `MIN_TIMESTAMP` or `MAX_TIMESTAMP` for what that cannot read.

    psycopg creates one for each statement; the rows of a statement often share their timestamps.
    """

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        default = psycopg.adapters.get_loader(oid, self.format)
        assert default is not None
        self._default = default(oid, context)
        self._cache: dict[bytes, datetime] = {}

    def load(self, data: Buffer) -> datetime:
        """The timestamp, in UTC."""
        text = bytes(data)
        moment = self._cache.get(text)
        if moment is None:
            if len(self._cache) == MAX_CACHED:
                self._cache.clear()
            try:
                moment = self._default.load(text).astimezone(UTC)
            except psycopg.DataError:
                moment = MIN_TIMESTAMP if text.startswith(b"-") or text.endswith(b"BC") else MAX_TIMESTAMP
            self._cache[text] = moment
        return moment


def use_lenient_timestamps(connection: psycopg.Connection[Any]) -> None:
    """Let a connection read every timestamp."""
    connection.adapters.register_loader(TIMESTAMPTZ, LenientTimestampLoader)
