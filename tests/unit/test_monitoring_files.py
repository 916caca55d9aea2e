"""The published dashboard, alert rules and table of metrics, against what a node and a cluster expose."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.core import Metric

from peerd.runtime.metrics.families import DATABASE_OUTCOMES, DEATH_CAUSES, FAMILIES, MetricKind
from peerd.storage.overview import StorageOverview
from peerd.store.connection import database
from peerd.supervision.exits import exit_cause
from peerd.web.metrics import ClusterCollector, ClusterSnapshot
from tests.support.monitoring_files import MONITORING, dashboard_expressions, dashboard_panels

DOCUMENT = Path(__file__).parents[2] / "docs" / "monitoring.md"
NAME = re.compile(r"\bpeerd_[a-z_]+\b")
ROW = re.compile(r"^\| `(peerd_[a-z_]+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def exposed() -> set[str]:
    """The names in the text formats: those of histograms have three endings."""
    names = {name for name, family in FAMILIES.items() if family.kind is not MetricKind.HISTOGRAM}
    for name, family in FAMILIES.items():
        if family.kind is MetricKind.HISTOGRAM:
            names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return names


def of_the_cluster() -> set[str]:
    storage = StorageOverview(disks=[], buckets=[], risks=[], settling=0, braked=[], grace=900.0)
    snapshot = ClusterSnapshot(NOW, [], [], [], [], storage, [], 0.1)
    metrics: list[Metric] = list(ClusterCollector(snapshot).collect())
    return {metric.name for metric in metrics}


def test_the_dashboard_and_the_rules_name_only_metrics_that_exist() -> None:
    text = "\n".join([*dashboard_expressions(), (MONITORING / "alerts.yml").read_text()])
    assert set(NAME.findall(text)) - exposed() - of_the_cluster() == set()


def test_every_metric_of_a_node_has_a_panel() -> None:
    shown = set(NAME.findall("\n".join(dashboard_expressions())))
    missing = {name for name in FAMILIES if not any(one.startswith(name) for one in shown)}
    assert missing == set()


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = dashboard_panels()
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))


def test_the_documentation_has_the_table_of_metrics() -> None:
    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(DOCUMENT.read_text())
    }
    kinds = {MetricKind.LARGEST: "gauge"}
    assert documented == {
        name: (kinds.get(family.kind, family.kind.value), family.labels) for name, family in FAMILIES.items()
    }


def test_the_causes_of_deaths_are_those_of_the_master() -> None:
    kinds = {value for name, value in vars(exit_cause).items() if name.isupper() and not name.startswith("_")}
    assert set(DEATH_CAUSES) == {kind for kind in kinds if isinstance(kind, str)}


def test_the_outcomes_of_operations_are_those_of_the_database() -> None:
    assert set(DATABASE_OUTCOMES) == {"done", "failed", *database._OUTCOMES.values()}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's package prometheus")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
        ("check", "config", "prometheus.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts_the_files(arguments: tuple[str, ...]) -> None:
    run = subprocess.run(["promtool", *arguments], check=False, capture_output=True, text=True, cwd=MONITORING)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_rule_is_tested() -> None:
    rules = set(re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yml").read_text()))
    tested = set(re.findall(r"alertname: (\w+)", (MONITORING / "alerts_test.yml").read_text()))
    assert rules == tested
