"""The agent's part of the metrics: it adds up what the processes of the node report, and answers with the sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from peerd import __version__
from peerd.agent.components import ComponentSupervisor, Subsystem
from peerd.domain.alert import AlertKind
from peerd.domain.errors import PeerdError
from peerd.runtime.inbox import Message
from peerd.runtime.metrics.families import DEATH_CAUSES
from peerd.runtime.metrics.node_metrics import NodeMetrics, ReportedGrowth, page_of
from peerd.runtime.metrics.registry import OTHER, Sample, SeriesKey, parse_samples
from peerd.runtime.process.process_context import METRICS_ACTION, METRICS_REPORT_ACTION
from peerd.shell import ProcessShell


class MetricsSwitchedOff(PeerdError, RuntimeError):
    """[telemetry] metrics is false."""

    def __init__(self) -> None:
        super().__init__("metrics are switched off: set [telemetry] metrics = true in peerd.toml")


@dataclass(eq=False)
class MetricsSubsystem(Subsystem):
    """Keeps the metrics of the node."""

    is_on: bool = True
    node: NodeMetrics = field(default_factory=NodeMetrics)

    def __post_init__(self) -> None:
        self._own_growth = ReportedGrowth()
        self._known_pids: frozenset[int] | None = None
        self._pid = 0

    async def start(self, shell: ProcessShell, components: ComponentSupervisor) -> None:
        self._pid = shell.link.pid
        self.metrics = shell.process.metrics
        shell.process.messenger.on(METRICS_REPORT_ACTION, self._add_report)
        shell.process.messenger.on(METRICS_ACTION, self._answer)
        info = Sample("peerd_node_info", (shell.link.node, __version__), 1)
        self.metrics.add_source(lambda: [info])

    def receive(self, message: Mapping[str, Any]) -> None:
        match message.get("type"):
            case "death":
                self._count_death(message)
            case "processes":
                self._count_restarts(message["processes"])
            case "alert":
                alert = str(message.get("alert"))
                is_known = alert in AlertKind.__members__.values()
                self.metrics.count("peerd_alerts_total", alert if is_known else OTHER)

    async def stop(self, grace: float) -> None:
        """Nothing runs."""

    def _count_death(self, report: Mapping[str, Any]) -> None:
        self.node.remove_process(int(report["pid"]))
        if not report["expected"]:
            cause = str(report["cause"]["kind"])
            self.metrics.count("peerd_deaths_total", cause if cause in DEATH_CAUSES else OTHER)

    def _count_restarts(self, processes: Iterable[Mapping[str, Any]]) -> None:
        """Count the restarts of processes since this agent began; its predecessor has counted earlier ones."""
        found = {int(process["pid"]): process for process in processes}
        if self._known_pids is not None:
            for pid in found.keys() - self._known_pids:
                if int(found[pid]["generation"]) > 1:
                    self.metrics.count("peerd_restarts_total", str(found[pid]["role"]))
        self._known_pids = frozenset(found)

    def _add_report(self, message: Message) -> None:
        try:
            samples = parse_samples(message.data)
        except msgspec.ValidationError as error:
            raise ValueError(f"a report of metrics is malformed: {error}") from error
        self.node.add(samples, message.sender.pid)

    def _answer(self, message: Message) -> Any:
        """The next page of the metrics; the data are `{"after": null}` or the series that the last page ended with."""
        if not self.is_on:
            raise MetricsSwitchedOff
        self.node.add(self._own_growth.take(self.metrics.samples()), self._pid)
        after = msgspec.convert(message.data["after"], SeriesKey | None)
        return msgspec.to_builtins(page_of(self.node.samples(), after))
