"""Change a rate at the source, and look at every worker's cache: once for each of the three ways."""

import asyncio
import random
import time
from typing import Any

import remote

from peerd import Client


def change(*, announced: bool) -> int:
    """Change a rate; the version that the source has then."""
    rate = round(random.uniform(0.5, 1.5), 4)
    answer = asyncio.run(remote.ask("change", currency="USD", rate=rate, announced=announced))
    return int(answer["version"])


def caches(client: Client) -> list[dict[str, Any]]:
    """What the workers know; a task asks them."""
    known: list[dict[str, Any]] = client.enqueue("rates").result(timeout=60)
    return sorted(known, key=lambda one: str(one["slot"]))


def show(client: Client, by: str, *, announced: bool) -> None:
    """Change until all workers have refreshed in this way: another one may have been quicker."""
    deadline = time.monotonic() + 60
    known: list[dict[str, Any]] = []
    while {one["by"] for one in known} != {by}:
        version = change(announced=announced)
        if by == "schedule":
            client.schedules.run("refresh")  # by hand: its ten minutes are long
        known = caches(client)
        while min(one["version"] for one in known) < version:
            assert time.monotonic() < deadline, known
            time.sleep(0.2)
            known = caches(client)
    for one in known:
        print(f"{one['slot']}: version {one['version']}, refreshed by {one['by']}, 1 EUR = {one['rates']['USD']} USD")


with Client.from_config() as client:
    show(client, "push", announced=True)
    show(client, "pull", announced=False)
    show(client, "schedule", announced=False)
