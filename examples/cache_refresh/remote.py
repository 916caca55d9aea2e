"""A client of the remote source."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from source import HOST, PORT, line_of


async def ask(do: str, **more: Any) -> Any:
    """Ask one question, and return its answer."""
    async with asyncio.timeout(5), connection() as (reader, writer):
        writer.write(line_of({"do": do, **more}))
        return await answer(reader)


async def versions() -> AsyncIterator[int]:
    """The version that the source has now, and each that it announces from now on."""
    async with connection() as (reader, writer):
        writer.write(line_of({"do": "subscribe"}))
        while True:
            yield (await answer(reader))["version"]


async def answer(reader: asyncio.StreamReader) -> Any:
    """The next answer."""
    if line := await reader.readline():
        return json.loads(line)
    raise ConnectionError("the source has hung up")


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, closed at the end."""
    reader, writer = await asyncio.open_connection(HOST, int(PORT))
    try:
        yield reader, writer
    finally:
        writer.close()
