"""The agent's part of tracing: the spans of what schedules enqueue are exported from its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.runtime.process.link import Link
from peerd.runtime.process.process_context import ProcessContext


@dataclass(eq=False)
class TracingSubsystem(Subsystem):
    """Exports the spans of the agent, if [telemetry] opentelemetry says so."""

    process: Callable[[], ProcessContext]
    """Gives the agent's process, once the subsystems before this one have started."""
    is_on: bool

    async def start(self, link: Link, components: ComponentSupervisor) -> None:
        if self.is_on:
            from peerd.runtime.tracing.provider import set_up_tracing  # noqa: PLC0415 - of an extra, and slow to load

            process = self.process()
            process.on_finish(set_up_tracing(process.node, process.slot))

    async def stop(self, grace: float) -> None:
        """The end of the agent's process exports the last spans."""
