from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.core import Metric

from peerd.runtime.metrics.families import DATABASE_OUTCOMES, DEATH_CAUSES, FAMILIES, MetricKind
from peerd.storage.overview import StorageOverview
from peerd.store.connection import database
from peerd.supervision import exits
from peerd.web.metrics import ClusterCollector, ClusterSnapshot
from tests.support.monitoring_files import MONITORING, dashboard_expressions

NAME = re.compile(r"\bpeerd_[a-z_]+\b")
RULES = (MONITORING / "alerts.yml").read_text()


def exposed() -> set[str]:
    """The names in the text formats: those of histograms have three endings. And those of the cluster."""
    storage = StorageOverview(disks=[], buckets=[], risks=[], settling=0, braked=[], grace=900.0)
    metrics: list[Metric] = list(
        ClusterCollector(
            ClusterSnapshot(datetime(2026, 1, 1, tzinfo=UTC), [], [], [], [], [], storage, [], 0.1)
        ).collect()
    )
    names = {metric.name for metric in metrics}
    for name, family in FAMILIES.items():
        endings = ("_bucket", "_sum", "_count") if family.kind is MetricKind.HISTOGRAM else ("",)
        names |= {f"{name}{ending}" for ending in endings}
    return names


def test_the_dashboard_and_the_rules_name_only_what_exists_and_every_metric_of_a_node_has_a_panel() -> None:
    shown = set(NAME.findall("\n".join(dashboard_expressions())))
    assert (shown | set(NAME.findall(RULES))) - exposed() == set()
    assert {name for name in FAMILIES if not any(one.startswith(name) for one in shown)} == set()
    kinds = {value for name, value in vars(exits).items() if name.isupper() and not name.startswith("_")}
    assert set(DEATH_CAUSES) == {kind for kind in kinds if isinstance(kind, str)}
    assert set(DATABASE_OUTCOMES) == {"done", "failed", *database._OUTCOMES.values()}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's package prometheus")
def test_promtool_accepts_the_files_and_every_rule_is_tested() -> None:
    for arguments in ("check rules alerts.yml", "test rules alerts_test.yml", "check config prometheus.yml"):
        command = ["promtool", *arguments.split()]
        run = subprocess.run(command, check=False, capture_output=True, text=True, cwd=MONITORING)
        assert run.returncode == 0, run.stdout + run.stderr
    tested = re.findall(r"alertname: (\w+)", (MONITORING / "alerts_test.yml").read_text())
    assert set(re.findall(r"- alert: (\w+)", RULES)) == set(tested)


ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "peerd"


def test_every_file_that_is_no_module_is_named_as_package_data() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["peerd"]
    named = {file for pattern in patterns for file in PACKAGE.glob(pattern)}
    others = {file for file in PACKAGE.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert others == named
    folders = {file.parent for file in PACKAGE.rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == [], "no packages"
