"""How a command follows what grows: page after page, with a pause where there is nothing more yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

READ_EVERY: Final = 1.0
"""Seconds between two readings of what is followed."""
PAGE: Final = 500


class GrowingPage(Protocol):
    """A page of what grows."""

    @property
    def next(self) -> str | None:
        """The cursor behind it."""

    @property
    def has_more(self) -> bool:
        """Whether there is another page now."""


Page = TypeVar("Page", bound=GrowingPage)


def read_pages(read: Callable[[str | None], Page], is_last: Callable[[Page], bool]) -> Iterator[Page]:
    """Page after page.

    Args:
        read: reads the page behind a cursor; None: the first one.
        is_last: whether a page without another one now is the last one.
    """
    after = None
    while True:
        page = read(after)
        yield page
        after = page.next
        if page.has_more:
            continue
        if is_last(page):
            return
        time.sleep(READ_EVERY)
