"""What a process knows of uploads between their requests: hashers, so that nothing is read again, and completions.

It may all be lost: the bytes are hashed again from the disk, and a completion begins anew.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from peerd.domain.files import StoredFile
from peerd.storage.disk.digest import ContentHasher

MOST_HASHERS: Final = 256
"""Uploads whose hashers are kept, those that were used last; a hasher has at most some hundred kilobytes."""
MOST_COMPLETIONS: Final = 256
"""Outcomes of completions that are kept for clients that ask again."""
COMPLETED_AT_ONCE: Final = 8

Completion = tuple[str, str]
"""The id of an upload, and the BLAKE3 that its client has named."""


class RunningUploads:
    """The uploads of a process. What is said of hashers is thread-safe; completions are begun in one event loop.

    Nothing here waits: what is kept beyond a bound is forgotten, and a completion that runs is never forgotten.
    """

    def __init__(self) -> None:
        self._hashers: OrderedDict[str, ContentHasher] = OrderedDict()
        self._completions: OrderedDict[Completion, asyncio.Task[StoredFile]] = OrderedDict()
        self.threads = ThreadPoolExecutor(COMPLETED_AT_ONCE, thread_name_prefix="peerd-complete")
        self._lock = threading.Lock()

    def hasher(self, upload_id: str, durable: int) -> ContentHasher | None:
        """A copy of the hasher of an upload, if it has had no more bytes than are durable."""
        with self._lock:
            kept = self._hashers.get(upload_id)
            return kept.copy() if kept is not None and kept.position <= durable else None

    def keep(self, upload_id: str, hasher: ContentHasher) -> None:
        """Keep a hasher that nothing else uses, which has had durable bytes only."""
        with self._lock:
            self._hashers[upload_id] = hasher
            self._hashers.move_to_end(upload_id)
            while len(self._hashers) > MOST_HASHERS:
                self._hashers.popitem(last=False)

    def forget(self, upload_id: str) -> None:
        """An upload has ended."""
        with self._lock:
            self._hashers.pop(upload_id, None)

    def complete(
        self, completion: Completion, begin: Callable[[], Coroutine[Any, Any, StoredFile]]
    ) -> asyncio.Task[StoredFile]:
        """The completion that runs, or has ended; if there is none, it begins. One that has failed is begun anew."""
        running = self._completions.get(completion)
        if running is None or (running.done() and (running.cancelled() or running.exception() is not None)):
            ended = [known for known, task in self._completions.items() if task.done()]
            for known in ended[: max(len(self._completions) - MOST_COMPLETIONS + 1, 0)]:
                del self._completions[known]
            running = self._completions[completion] = asyncio.create_task(begin(), name="completion of an upload")
        return running
