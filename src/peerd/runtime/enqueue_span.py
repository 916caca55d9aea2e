"""The span of an enqueue, in any process.

It costs a look into a table where OpenTelemetry is not loaded. Where the application has loaded it and set it up, an
enqueue has a span without any setting of peerd, as other clients of servers have.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from peerd.domain.task import NewTask

_API = "opentelemetry.trace"


class EnqueueSpan:
    """A span that has begun; `stamp` the tasks with it, and write them in a block `ending`."""

    def __init__(self, span: Any) -> None:
        from peerd.runtime import spans  # noqa: PLC0415 - OpenTelemetry is loaded

        self._span = span
        self._end = spans.end_send_span
        self._text = spans.text_of_span(span)
        self.message_id: int | None = None
        """The id of the task, if one was written."""

    def stamp(self, new: Sequence[NewTask]) -> list[NewTask]:
        """The tasks with this span in `trace_context`, unless they have one that the caller gave."""
        return [
            one if one.trace_context is not None else msgspec.structs.replace(one, trace_context=self._text)
            for one in new
        ]

    @contextmanager
    def ending(self) -> Iterator[None]:
        """End the span with the block, with the error that the block raises."""
        try:
            yield
        except BaseException as error:
            self._end(self._span, error, None)
            raise
        self._end(self._span, None, self.message_id)


def begin_enqueue_span(new: Sequence[NewTask]) -> EnqueueSpan | None:
    """The span of an enqueue; None where OpenTelemetry is not loaded, or records and passes on nothing."""
    if _API not in sys.modules or not new:
        return None
    from peerd.runtime.spans import start_send_span  # noqa: PLC0415 - OpenTelemetry is loaded

    span = start_send_span([one.queue for one in new])
    return None if span is None else EnqueueSpan(span)
