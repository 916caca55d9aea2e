"""The remote source: exchange rates that somebody else keeps, and a feed of their changes.

``python source.py`` runs it. It stands for a service on the network, and knows nothing of peerd. A request is a line of
JSON, and so is each answer.
"""

import asyncio
import contextlib
import json
import os
from typing import Any

HOST, _, PORT = os.environ.get("SOURCE", "127.0.0.1:8765").rpartition(":")


class Source:
    """The rates, and who wants to hear of changes."""

    def __init__(self) -> None:
        self.version = 1
        self.rates = {"EUR": 1.0, "USD": 1.08, "JPY": 171.0}
        self.subscribers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it ends."""
        try:
            while line := await reader.readline():
                writer.write(line_of(self.answer(json.loads(line), writer)))
                await writer.drain()
        finally:
            self.subscribers.discard(writer)
            writer.close()

    def answer(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        """Read, look for the version, change, or subscribe."""
        match request:
            case {"do": "read"}:
                return {"version": self.version, "rates": self.rates}
            case {"do": "subscribe"}:  # answered with the version of now, then with each that is announced
                self.subscribers.add(writer)
            case {"do": "change", "currency": str(currency), "rate": float(rate), "announced": bool(announced)}:
                self.change(currency, rate, announced=announced)
        return {"version": self.version}

    def change(self, currency: str, rate: float, *, announced: bool) -> None:
        """Change a rate. Not every source announces all of its changes; this one can be told to be silent."""
        self.rates[currency] = rate
        self.version += 1
        for subscriber in self.subscribers if announced else ():
            subscriber.write(line_of({"version": self.version}))


def line_of(answer: dict[str, Any]) -> bytes:
    """An answer as it goes over the wire."""
    return json.dumps(answer).encode() + b"\n"


async def main() -> None:
    """Serve until Ctrl-C."""
    async with await asyncio.start_server(Source().serve, HOST, int(PORT)) as server:
        print(f"rates are served on {HOST}:{PORT}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
