"""The REST API of a cluster and the metrics of a node, as ASGI apps.

A node serves the API with ``[web.dashboard] app = "peerd.web:app"``; `create_app` makes one for a site of your own. A
node that shall show its metrics and nothing else has ``app = "peerd.web:metrics_app"``.
"""

from __future__ import annotations

from peerd.web.app import create_app
from peerd.web.metrics_app import metrics_app

__all__ = ["app", "create_app", "metrics_app"]

app = create_app()
"""Of a node's web process: it takes the client of its process."""
