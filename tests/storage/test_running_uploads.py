"""What a process keeps of uploads between their requests, one above each bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from peerd.storage.disk.digest import ContentHasher
from peerd.storage.running_uploads import MOST_COMPLETIONS, MOST_HASHERS, Completion, RunningUploads


def test_the_hasher_that_was_used_longest_ago_is_forgotten() -> None:
    uploads = RunningUploads()
    for number in range(MOST_HASHERS):
        uploads.keep(f"upload {number}", ContentHasher())
    uploads.keep("upload 0", ContentHasher())
    uploads.keep("one more", ContentHasher())
    assert uploads.hasher("upload 1", 0) is None
    assert None not in (uploads.hasher("upload 0", 0), uploads.hasher("upload 2", 0), uploads.hasher("one more", 0))


async def test_completions_that_have_ended_are_forgotten_behind_one_that_still_runs() -> None:
    uploads, goes_on, begun = RunningUploads(), asyncio.Event(), list[str]()

    def completion(name: str, *, waits: bool = False) -> tuple[Completion, Callable[[], Coroutine[Any, Any, Any]]]:
        async def run() -> None:
            begun.append(name)
            if waits:
                await goes_on.wait()

        return (name, ""), run

    first = uploads.complete(*completion("first", waits=True))
    for number in range(MOST_COMPLETIONS):
        await uploads.complete(*completion(f"upload {number}"))
    await uploads.complete(*completion(f"upload {MOST_COMPLETIONS - 1}"))
    assert len(begun) == len(set(begun)), "its outcome is kept"
    await uploads.complete(*completion("upload 0"))
    assert begun[-1] == "upload 0", "it was forgotten, and begins anew"
    assert uploads.complete(*completion("first", waits=True)) is first
    goes_on.set()
    await first
