"""PostgreSQL's moments that Python does not have: infinity, years before Christ and after 9999.

Anybody may write them with SQL. The driver refuses to read them, and with them every row that was read together.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader

from peerd.store.schema.types import MAX_TIMESTAMP, MIN_TIMESTAMP

MAX_CACHED: Final = 1000
"""Moments of one statement."""
TIMESTAMPTZ = psycopg.adapters.types["timestamptz"].oid


class LenientTimestampLoader(Loader):
    """Reads as the driver does; what it cannot read is before or after all other moments.

    It is made anew for each statement, whose rows often have the same moments.
    """

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        usual = psycopg.adapters.get_loader(oid, self.format)
        assert usual is not None
        self._usual = usual(oid, context)
        self._read: dict[bytes, datetime] = {}

    def load(self, data: Buffer) -> datetime:
        """The moment, in UTC."""
        text = bytes(data)
        moment = self._read.get(text)
        if moment is None:
            if len(self._read) == MAX_CACHED:
                self._read.clear()
            moment = self._read[text] = self._moment_of(text)
        return moment

    def _moment_of(self, text: bytes) -> datetime:
        try:
            moment: datetime = self._usual.load(text)
        except psycopg.DataError:
            return MIN_TIMESTAMP if text.startswith(b"-") or text.endswith(b"BC") else MAX_TIMESTAMP
        return moment.astimezone(UTC)


def use_lenient_timestamps(connection: psycopg.Connection[Any]) -> None:
    """Let a connection read whatever moment there is."""
    connection.adapters.register_loader(TIMESTAMPTZ, LenientTimestampLoader)
