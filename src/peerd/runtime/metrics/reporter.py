"""Sends the growth of a process's metrics to the agent of its node, every few seconds and at its end."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Final

from peerd.domain.errors import MessengerFull
from peerd.runtime.metrics.growth import GAUGES, ReportedGrowth
from peerd.runtime.metrics.registry import MetricsRegistry
from peerd.runtime.metrics.samples import Sample, in_chunks, parse_samples
from peerd.runtime.process.process_context import METRICS_REPORT_ACTION, ProcessContext

REPORT_EVERY: Final = 5.0
"""Seconds; a process that is killed loses what it has counted since its last report."""


class MetricsReporter:
    """Reports the metrics of a process. Made on its event loop; the process stops it.

    An idle process sends a message of a few hundred bytes; what is not delivered is sent with the next report.
    """

    def __init__(self, process: ProcessContext, every: float = REPORT_EVERY) -> None:
        self._process = process
        self._metrics: MetricsRegistry = process.metrics
        self._every = every
        self._growth = ReportedGrowth()
        self._agent: int | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(every, self._report_periodically)
        process.messenger.on_change(self._on_processes)
        process.on_finish(self._finish)

    def _report_periodically(self) -> None:
        self._timer = self._loop.call_later(self._every, self._report_periodically)
        self._report(self._metrics.samples())

    def _report(self, samples: list[Sample]) -> None:
        for chunk in in_chunks(self._growth.take(samples)):
            growth = parse_samples(chunk)
            try:
                delivery = self._process.messenger.send_to_agent(METRICS_REPORT_ACTION, chunk)
            except MessengerFull:
                self._growth.undo(growth)
                continue
            delivery.is_awaited = True
            delivery.future.add_done_callback(partial(self._on_delivered, growth))

    def _on_delivered(self, growth: list[Sample], delivered: Future[int]) -> None:
        if delivered.exception() is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._growth.undo, growth)

    def _on_processes(self) -> None:
        agent = self._process.messenger.agent
        if agent is not None and agent.pid != self._agent:
            self._agent = agent.pid
            self._growth.forget_gauges()

    def _finish(self) -> None:
        """Report what has grown since; gauges end with the process."""
        self._timer.cancel()
        self._report([sample for sample in self._metrics.samples() if sample.kind not in GAUGES])
