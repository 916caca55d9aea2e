"""Reads the metrics of a node from its agent, page by page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

import msgspec

from peerd.domain.errors import PeerdError
from peerd.runtime.metrics.node_metrics import MetricsPage
from peerd.runtime.metrics.samples import Sample, parse_samples

MAX_PAGES: Final = 200
"""More than the series of a node fill."""


class MetricsNotAvailable(PeerdError, RuntimeError):
    """The metrics of the node cannot be read."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the metrics of this node cannot be read from its agent: {reason}")


class NotServedByNode(PeerdError, LookupError):
    """The app is not served by a process of a node, so there is no node whose metrics it could show."""

    def __init__(self) -> None:
        super().__init__("no process of a node serves this app, so it has no node to show the metrics of")


def read_node_metrics(request: Callable[[object], Any]) -> list[Sample]:
    """Read all pages.

    Args:
        request: sends the agent a request for metrics with these data, and returns its answer.

    Raises:
        MetricsNotAvailable: the agent has answered something else.
    """
    pages = _pages()
    data = next(pages)
    while True:
        try:
            data = pages.send(request(data))
        except StopIteration as end:
            samples: list[Sample] = end.value
            return samples


async def read_node_metrics_async(request: Callable[[object], Awaitable[Any]]) -> list[Sample]:
    """`read_node_metrics`, with a request that is awaited."""
    pages = _pages()
    data = next(pages)
    while True:
        answer = await request(data)
        try:
            data = pages.send(answer)
        except StopIteration as end:
            samples: list[Sample] = end.value
            return samples


def _pages() -> Generator[object, Any, list[Sample]]:
    """Yields what to ask for, gets the answers, and returns all samples."""
    found: list[Sample] = []
    after: object = None
    for _ in range(MAX_PAGES):
        answer = yield {"after": after}
        try:
            page = msgspec.convert(answer, MetricsPage)
            found += parse_samples(page.samples)
        except msgspec.ValidationError as error:
            raise MetricsNotAvailable(f"its answer is none ({error})") from error
        if page.after is None:
            return found
        after = page.after
    raise MetricsNotAvailable(f"they have more than {MAX_PAGES} pages")
