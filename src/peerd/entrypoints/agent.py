"""The agent's process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peerd.agent.alert_delivery import AlertDispatcher
from peerd.agent.alert_recorder import AlertRecorder
from peerd.agent.doorbell_subsystem import DoorbellSubsystem
from peerd.agent.metrics import MetricsSubsystem
from peerd.agent.node_requests import NodeRequestReceiver, NodeRequestRefused
from peerd.agent.resource_usage import ResourceMonitor, UsageLimits
from peerd.agent.service import AgentService
from peerd.agent.setup import SetupFunction, SetupRunner
from peerd.config.schedules import schedules_for_node
from peerd.doorbell.ringing import DoorbellEventListener
from peerd.entrypoints.process_parts import ImportStringError, InvalidEntry, ProcessParts, import_object
from peerd.operate.client import Client
from peerd.runtime.metrics.registry import AttemptStatistics
from peerd.runtime.observability.error_reporting import ErrorHook
from peerd.runtime.observability.events import AttemptEnded, ErrorHookFailed
from peerd.schedules.registry import ScheduleRegistry
from peerd.schedules.scheduler import Scheduler
from peerd.shell import ProcessShell


def agent(payload: Mapping[str, Any]) -> ProcessShell:
    parts = ProcessParts(payload, pool_size=5)
    settings, events = parts.settings, parts.events
    incarnation = str(payload["incarnation"])
    silence = settings.manager.inactive_after
    statistics = AttemptStatistics()
    if settings.telemetry.metrics:
        events.listen(statistics, (AttemptEnded,))
    registry = ScheduleRegistry(schedules_for_node(settings))
    schedules = Scheduler(registry, import_object, incarnation=incarnation, silence=silence)
    requests = NodeRequestReceiver(incarnation, send_to_master)
    doorbell = DoorbellSubsystem(
        settings.node, settings.cluster, incarnation, on_request=requests.wake, on_schedules=schedules.notice_stored
    )
    events.listen(DoorbellEventListener(doorbell.ring), debug=False)
    limits = {kind: UsageLimits(*values) for kind, values in payload["limits_of_commands"].items()}
    subsystems = (
        AlertDispatcher(settings.alerts, settings.project_directory),
        AlertRecorder(),
        SetupRunner(settings.agent.setup, find_setup, settings.node.run_directory, registry),
        MetricsSubsystem(settings.telemetry.metrics),
        doorbell,
        ResourceMonitor(limits),
        schedules,
        requests,
    )
    about = (settings.node, settings.logging, incarnation, silence, settings.agent.options)
    service = AgentService(*about, subsystems=subsystems)
    client = Client(settings.database.url, secret=settings.cluster.secret, mask=settings.access.mask)
    hook = load_error_hook_if_possible(parts)
    return parts.make_shell(service, client=client, error_hook=hook, statistics=statistics)


def load_error_hook_if_possible(parts: ProcessParts) -> ErrorHook | None:
    """The hook of [errors]; an agent must start in any case, so a hook that does not load is an event."""
    try:
        return parts.load_error_hook()
    except InvalidEntry as error:
        parts.events.emit(ErrorHookFailed(error=str(error)))
        return None


def send_to_master(run_directory: Path, command: Mapping[str, object]) -> dict[str, Any]:
    """Send a command by the control socket of a node; what carries out the requests to this node calls it."""
    from peerd.supervision import control_client  # noqa: PLC0415 - few agents get requests

    try:
        return control_client.send_command(run_directory, command)
    except (control_client.CommandRefused, control_client.MasterNotRunning) as error:
        raise NodeRequestRefused(str(error)) from None


def find_setup(entry: str) -> SetupFunction:
    """Return the function that [agent] setup names, or raise ImportStringError."""
    found = import_object(entry)
    if not callable(found):
        raise ImportStringError(f"{entry} is a {type(found).__name__}, not a function that takes the agent")
    return found
