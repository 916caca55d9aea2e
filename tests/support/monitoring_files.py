"""The dashboard and the alert rules that we publish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

MONITORING: Final = Path(__file__).parents[2] / "monitoring"


def dashboard_panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    return panels


def dashboard_expressions() -> list[str]:
    """The PromQL of every panel, with Grafana's variables replaced."""
    expressions = [target["expr"] for panel in dashboard_panels() for target in panel.get("targets", ())]
    return [one.replace("$__rate_interval", "1m").replace("$queue", ".*") for one in expressions]
