"""The REST API of a cluster, as an ASGI app.

A node serves it with ``[web.dashboard] app = "peerd.web:app"``; `create_app` makes one for a site of your own.
"""

from __future__ import annotations

from peerd.web.app import create_app

__all__ = ["app", "create_app"]

app = create_app()
"""Of a node's web process: it takes the client of its process."""
