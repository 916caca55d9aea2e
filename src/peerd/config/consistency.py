"""Checks of settings. Problems: incomplete tables, contradictions. Warnings: what is allowed and risky."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from peerd.config.address import is_sqlite
from peerd.config.problems import KeyPath, Problem
from peerd.config.schedules import find_schedule_problems, find_schedule_warnings
from peerd.config.security import find_access_problems, find_access_warnings
from peerd.config.settings import ProcessSettings, ServingSettings, Settings, WorkerSettings
from peerd.config.source import ConfigSource, find_line
from peerd.domain.bind_address import SocketAddress, parse_bind_address
from peerd.domain.units import format_duration

SYSTEMD_STOP_TIMEOUT = 90.0
"""DefaultTimeoutStopSec of systemd: a service that stops for longer is killed."""


def find_incomplete_tables(source: ConfigSource) -> Iterator[Problem]:
    """Tables that need exactly one of some keys and have none or several, even if the values are invalid."""
    yield from _name_problems(source)
    for name, worker in _tables_in(source, "workers"):
        key_path = ("workers", name)
        if "tasks" in worker and "worker" in worker:
            second = max("tasks", "worker", key=lambda key: find_line((*key_path, key), source.lines) or 0)
            yield source.problem((*key_path, second), "a worker has tasks or worker, not both", "keep one of them")
        if "tasks" not in worker and "worker" not in worker:
            remedy = 'name a queue, tasks = "studio.jobs:video", or a class, worker = "studio.jobs:Cleanup"'
            yield source.problem(key_path, "has nothing to run", remedy)

    for name, hook in _tables_in(source, "alerts"):
        channels = [
            channel for channel in ("webhook", "mail", "command", "log") if hook.get(channel) not in (None, False)
        ]
        if len(channels) != 1:
            given = f"has {' and '.join(channels)}" if channels else "has no way out"
            remedy = "give exactly one of webhook, mail, command and log = true"
            yield source.problem(("alerts", name), given, remedy)


def _name_problems(source: ConfigSource) -> Iterator[Problem]:
    """Names of kinds of processes must be unique: status and reload know a kind by its name alone."""
    taken: dict[str, str] = {}
    for section in ("workers", "commands", "web", "gateway"):
        for name, _ in _tables_in(source, section):
            if name in {"agent", "manager", "master", "watcher"}:
                yield source.problem((section, name), "is the name of a process of peerd's own", "choose another name")
            if name in taken:
                yield source.problem((section, name), f"[{taken[name]}.{name}] has this name", "choose another name")
            taken.setdefault(name, section)


def _tables_in(source: ConfigSource, section: str) -> Iterator[tuple[str, dict[str, Any]]]:
    tables: Any = source.values.get(section)
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if isinstance(table, dict):
            yield name, table


def find_contradictions(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """Settings that cannot all hold: running tasks would be rescued, or two sections would listen on one address."""
    yield from _duplicate_bindings(settings, source)
    yield from find_access_problems(settings, source)
    heartbeat, inactive = settings.node.heartbeat_every, settings.manager.inactive_after
    if inactive <= heartbeat and source.has_valid(("node", "heartbeat_every"), ("manager", "inactive_after")):
        problem = f"{format_duration(inactive)} is no longer than a heartbeat ({format_duration(heartbeat)})"
        remedy = "give at least two heartbeats (node.heartbeat_every)"
        yield source.problem(("manager", "inactive_after"), f"{problem}: every node would be called inactive", remedy)
    max_update = settings.manager.max_update
    for name, worker in settings.workers.items():
        both_valid = source.has_valid(("manager", "max_update"), ("workers", name, "update"))
        if worker.update >= max_update and both_valid:
            touched, taken = format_duration(worker.update), format_duration(max_update)
            problem = f"running tasks are touched every {touched}, but are taken away {taken} after their last touch"
            yield source.problem(("workers", name, "update"), problem, "give less than half of manager.max_update")
    yield from find_schedule_problems(settings, source)


def _duplicate_bindings(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """A connection would reach one section or the other by chance."""
    taken: dict[SocketAddress, KeyPath] = {}
    listening = [(section, bind) for section, serving in _serving(settings) for bind in serving.bind]
    for (section, name), bind in listening:
        if not source.has_valid((section, name, "bind")):
            continue
        try:
            other = taken.setdefault(parse_bind_address(bind), (section, name))
        except ValueError as error:  # its path, now absolute, is too long
            yield source.problem((section, name, "bind"), str(error))
            continue
        if other != (section, name):
            problem = f"[{'.'.join(other)}] listens on {bind} too"
            yield source.problem((section, name, "bind"), problem, "choose another")


def find_warnings(settings: Settings, source: ConfigSource) -> list[Problem]:
    """Settings that are allowed, and probably not meant."""
    return [
        *_node_warnings(settings, source),
        *_worker_warnings(settings, source),
        *_conflicting_max_attempts(settings, source),
        *find_schedule_warnings(settings, source),
        *_serving_warnings(settings, source),
        *_keep_alive_warnings(settings, source),
        *find_access_warnings(settings, source),
    ]


def _node_warnings(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    kinds: list[WorkerSettings | ProcessSettings] = [*settings.workers.values(), *settings.commands.values()]
    kinds += [serving for _, serving in _serving(settings)]
    if not any(kind.enabled for kind in kinds):
        yield source.problem(("workers",), "no worker is enabled", "this node will do maintenance, and run nothing")
    grace, limit = settings.node.grace, format_duration(SYSTEMD_STOP_TIMEOUT)
    if grace >= SYSTEMD_STOP_TIMEOUT:
        problem = f"systemd kills a service that takes more than {limit} to stop"
        remedy = f"set TimeoutStopSec above {format_duration(grace)} in the unit, as peerd systemd does"
        yield source.problem(("node", "grace"), problem, remedy)
    if settings.project_directory.is_symlink() and f"//{settings.project_directory}/" in settings.database.url:
        problem = "the file is in a folder that a link names: if it is switched, each release has another one"
        yield source.problem(("database", "url"), problem, "give the path of a folder that releases share")
    for key in ("address", "zone"):
        if is_sqlite(settings.database.url) and getattr(settings.node, key) is not None:
            remedy = "use MariaDB, MySQL or PostgreSQL for several machines"
            yield source.problem(("node", key), "SQLite serves one machine only: there are no other nodes", remedy)


def _worker_warnings(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    max_update = settings.manager.max_update
    for name, worker in settings.workers.items():
        yield from _grace_warnings(("workers", name), worker.grace, settings, source)
        if max_update / 2 < worker.update < max_update:
            limit = format_duration(max_update)
            problem = f"one late touch and a running task is taken away (manager.max_update is {limit})"
            remedy = f"give at most {format_duration(max_update / 3)}"
            yield source.problem(("workers", name, "update"), problem, remedy)


def _grace_warnings(
    section: KeyPath, grace: float | None, settings: Settings, source: ConfigSource
) -> Iterator[Problem]:
    if grace is not None and grace > settings.node.grace:
        problem = f"the node stops after {format_duration(settings.node.grace)}, also where a worker is given more"
        yield source.problem((*section, "grace"), problem, "raise node.grace")


def _serving(settings: Settings) -> list[tuple[KeyPath, ServingSettings]]:
    """The sections [web.NAME] and [gateway.NAME], with their keys."""
    web = [(("web", name), web) for name, web in settings.web.items()]
    return [*web, *((("gateway", name), gateway) for name, gateway in settings.gateway.items())]


def _serving_warnings(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    for section, serving in _serving(settings):
        yield from _grace_warnings(section, serving.grace, settings, source)
        if serving.reuse_port:
            problem = (
                "any program of this user may take a part of the connections, and connections in the queue of one "
                "that ends are reset"
            )
            remedy = "leave it out, unless several nodes of one machine share the port"
            yield source.problem((*section, "reuse_port"), problem, remedy)


def _keep_alive_warnings(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    for name, web in settings.web.items():
        grace = settings.node.grace if web.grace is None else web.grace
        if web.keep_alive >= grace:
            problem = (
                f"idle connections are kept as long as the grace of {format_duration(grace)}: "
                "a process that stops has to cut them off, and a request that is on its way is lost"
            )
            yield source.problem(("web", name, "keep_alive"), problem, "give less than the grace")


def _conflicting_max_attempts(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """The worker that claims a task writes its own max_attempts into it, so two values for one queue depend on luck."""
    served: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name, worker in settings.workers.items():
        for queue in (*worker.queues, *(worker.tasks or ())):
            served[queue].append((name, worker.max_attempts))
    for queue, workers in served.items():
        if len({limit for _, limit in workers}) > 1:
            first, *_, (last, _limit) = workers
            problem = f"{queue} is served by {first[0]} too, with another max_attempts"
            remedy = "give both the same: the worker that claims a task decides"
            yield source.problem(("workers", last, "max_attempts"), problem, remedy)
