"""What the pages of all viewers share, and for how long."""

from __future__ import annotations

import gc
import weakref

from peerd.web.pages.read_cache import ReadCache


class Answer:
    """Something large."""


async def read_answer() -> Answer:
    return Answer()


async def test_an_answer_is_kept_no_longer_than_it_is_shown() -> None:
    for cache, is_kept in ((ReadCache(fresh_for=60.0), True), (ReadCache(fresh_for=-1.0), False)):
        answer = weakref.ref(await cache.read("one", read_answer))
        await cache.read("another", read_answer)
        gc.collect()
        assert (answer() is not None) is is_kept
