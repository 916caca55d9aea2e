"""Builds the master's plan of a node: its kinds of processes, and the settings that each gets.

    python -P -m peerd.entrypoints.node_plan INCARNATION [FILE [watch]]

prints the plan anew for a master that reloads; `watch` if the node has a watcher. Errors of the configuration go to
stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from peerd.config.section import serialize_section
from peerd.config.settings import CommandSettings, GatewaySettings, Settings, WebSettings, WorkerSettings
from peerd.store.nodes import new_incarnation

ENTRIES: Final = {
    "agent": "peerd.entrypoints.agent:agent",
    "manager": "peerd.entrypoints.manager:manager",
    "watcher": "peerd.entrypoints.watcher:watcher",
    "worker": "peerd.entrypoints.worker:worker",
    "web": "peerd.entrypoints.web:web",
    "gateway": "peerd.entrypoints.gateway:gateway",
}
PLANNER: Final = (sys.executable, "-P", "-m", "peerd.entrypoints.node_plan")
COMMON_SECTIONS: Final = ("project_directory", "file", "node", "database", "cluster", "logging", "telemetry")
"""Sections that every process gets; a kind gets no more than it needs: `--config-only` replaces it when they change."""


def build_node_plan(
    settings: Settings, incarnation: str | None = None, *, background: bool = False, watch: bool = False
) -> dict[str, Any]:
    """Return the plan: agent, manager, workers, web processes, gateways and commands.

    `incarnation` is the running master's, if there is one; a node in the background needs a log file; with
    `watch` it has a watcher.
    """
    master_incarnation = incarnation or new_incarnation()
    log_file = settings.log_file if background else settings.logging.file
    return {
        "node": settings.node.name,
        "run_directory": str(settings.node.run_directory),
        "project_directory": str(settings.project_directory),
        "shutdown_interval": settings.node.shutdown_interval,
        "grace": settings.node.grace,
        "kinds": [
            {"silent_after": settings.node.silent_after, **kind}
            for kind in _plan_kinds(settings, master_incarnation, watch=watch)
        ],
        "sockets": dict(_plan_sockets(settings)),
        "planner": [*PLANNER, master_incarnation, str(settings.file or ""), *(["watch"] if watch else [])],
        "log_file": None if log_file is None else str(log_file),
        "log_format": settings.logging.format,
        "background": background,
    }


def _plan_kinds(settings: Settings, incarnation: str, *, watch: bool) -> Iterator[dict[str, Any]]:
    plain = serialize_section(settings)

    def payload(kind: str, *sections: str, **more: Any) -> dict[str, Any]:
        own = {name: plain[name] for name in (*COMMON_SECTIONS, *sections) if name in plain}
        return {"kind": kind, "incarnation": incarnation, "settings": {**own, **more}}

    limits = {name: [one.recycle_memory, one.recycle_cpu] for name, one in settings.commands.items()}
    masks = {"access": {"mask": list(settings.access.mask)}} if settings.access.mask else {}
    agent = payload("agent", "manager", "agent", "alerts", "schedules", "errors", **masks)
    yield _plan_kind("agent", "agent", payload={**agent, "limits_of_commands": limits}, hang_after=60.0)
    yield _plan_kind("manager", "manager", payload=payload("manager", "manager", "queues", "statistics"))
    if watch:
        agent_runs_code = settings.agent.setup or settings.errors.hook
        running_code = [*settings.workers, *settings.web, *(["agent"] if agent_runs_code else [])]
        yield _plan_kind("watcher", "watcher", payload={**payload("watcher"), "kinds": running_code})
    for name, worker in settings.workers.items():
        sections = {"workers": {name: plain["workers"][name]}, **masks}
        yield _plan_section(name, "worker", worker, payload(name, "statistics", "errors", **sections))
    for name, web in settings.web.items():
        sections = {"web": {name: plain["web"][name]}}
        yield _plan_section(name, "web", web, payload(name, "errors", "access", **sections))
    for name, gateway in settings.gateway.items():
        sections = {"gateway": {name: plain["gateway"][name]}}
        kind = _plan_section(name, "gateway", gateway, payload(name, "manager", "queues", **sections))
        yield {**kind, "drains": True, "drain_timeout": gateway.drain_timeout}
    for name, command in settings.commands.items():
        own = {"command": list(command.command), "environment": dict(command.environment)}
        yield {"name": name, "role": "command", **own, **_common_fields(command)}


def _plan_sockets(settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield sockets by address, not by kind: a renamed kind keeps the socket of the former one."""
    all_listening: tuple[WebSettings | GatewaySettings, ...]
    all_listening = (*settings.web.values(), *settings.gateway.values())
    for listening in all_listening:
        for bind in listening.bind if listening.enabled else ():
            how = {"backlog": listening.backlog, "mode": listening.unix_mode, "reuse_port": listening.reuse_port}
            yield bind, {"bind": bind, **how}


def _plan_kind(name: str, role: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "entry": ENTRIES[role], **more}


def _plan_section(
    name: str, role: str, section: WorkerSettings | WebSettings | GatewaySettings, payload: Mapping[str, Any]
) -> dict[str, Any]:
    binds = () if isinstance(section, WorkerSettings) or not section.enabled else section.bind
    own = {"payload": payload, "hang_after": section.hang_after, "sockets": list(binds)}
    return _plan_kind(name, role, **own, **_common_fields(section))


def _common_fields(section: WorkerSettings | WebSettings | GatewaySettings | CommandSettings) -> dict[str, float]:
    grace = {} if section.grace is None else {"grace": section.grace}
    return {"processes": section.processes if section.enabled else 0, **grace}


def main(incarnation: str, file: str = "", watch: str = "") -> int:
    """Print the plan; return the exit status."""
    from peerd.config import ConfigError, load  # noqa: PLC0415 - only the planner's process reads the configuration

    try:
        settings = load(Path(file) if file else None)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    json.dump(build_node_plan(settings, incarnation, watch=bool(watch)), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
