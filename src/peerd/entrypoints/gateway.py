"""A gateway process: serves queue clients by the beanstalkd and the JSON protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerd.entrypoints.process_parts import ProcessParts
from peerd.gateway.service import GatewayService
from peerd.shell import ProcessShell


def gateway(payload: Mapping[str, Any]) -> ProcessShell:
    parts = ProcessParts(payload)
    settings = parts.settings
    service = GatewayService(
        settings.gateway[parts.kind],
        settings.queues,
        settings.cluster.secret,
        settings.node.run_directory,
        settings.manager.max_update,
    )
    return parts.make_shell(service)
