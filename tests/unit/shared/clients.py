"""Shared clients for the tests, with a source that records the requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from peerd.shared.client import SharedClient


@dataclass
class Source:
    values: dict[str, Any] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    clients: list[Studio] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)


@dataclass
class Film:
    name: str
    shown_at: datetime


class Studio(SharedClient):
    def __init__(self, source: Source) -> None:
        self.source = source
        self.broken = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def open(self) -> None:
        self.source.requests.append("open")
        if "open" in self.source.refuses:
            raise ConnectionRefusedError("the studio is closed")
        self.source.clients.append(self)

    async def run(self) -> None:
        await self.broken.wait()
        raise ConnectionError("the studio has hung up")

    async def close(self) -> None:
        self.source.requests.append("close")

    async def follow(self, key: str) -> None:
        self.source.requests.append(f"follow {key}")
        if str(key) in self.source.refuses:
            raise LookupError(f"no film {key}")
        if str(key) in self.source.values:
            self.emit(key, self.source.values[str(key)])

    async def unfollow(self, key: str) -> None:
        self.source.requests.append(f"unfollow {key}")

    async def publish(self, key: str, value: Any) -> None:
        self.source.values[key] = value
        self.emit(key, value)

    async def double(self, number: int, *, times: int = 1) -> int:
        return number * 2 * times

    async def film(self, film: Film) -> Film:
        assert isinstance(film, Film), film
        return film

    async def fail(self, text: str) -> None:
        raise ValueError(text)

    async def leave(self) -> None:
        raise SystemExit(3)

    async def hang(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def give(self, size: int) -> bytes:
        return b"x" * size

    async def give_object(self) -> object:
        return object()

    def plain(self) -> int:
        return 1
