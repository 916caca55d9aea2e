"""Checks of settings against each other: contradictions, which are problems, and warnings."""

from __future__ import annotations

import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peerd.config.address import has_password, is_sqlite
from peerd.config.problems import Problem
from peerd.config.reading.source import ConfigSource
from peerd.config.reading.toml_lines import KeyPath, find_line
from peerd.config.schedules import find_schedule_problems, find_schedule_warnings
from peerd.config.settings import CommandSettings, Settings, WebSettings, WorkerSettings
from peerd.domain.bind_address import SocketAddress, parse_bind_address
from peerd.domain.duration import format_duration

SYSTEMD_STOP_TIMEOUT = 90.0
"""DefaultTimeoutStopSec of systemd: a service that stops for longer is killed."""


def find_incomplete_tables(source: ConfigSource) -> Iterator[Problem]:
    """Tables that have too many or too few of the keys of which one must be given, even if the values are invalid."""
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
    for section in ("workers", "commands", "web"):
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
    """Settings that cannot all hold: running tasks would be rescued, or two apps would listen on one address."""
    yield from _duplicate_bindings(settings, source)
    heartbeat, inactive = settings.node.heartbeat_every, settings.manager.inactive_after
    if inactive <= heartbeat and source.has_valid(("node", "heartbeat_every"), ("manager", "inactive_after")):
        yield source.problem(
            ("manager", "inactive_after"),
            f"{format_duration(inactive)} is no longer than a heartbeat ({format_duration(heartbeat)}): "
            "every node would be called inactive",
            "give at least two heartbeats (node.heartbeat_every)",
        )
    rescue = settings.manager.max_update
    for name, worker in settings.workers.items():
        both_valid = source.has_valid(("manager", "max_update"), ("workers", name, "update"))
        if worker.update >= rescue and both_valid:
            yield source.problem(
                ("workers", name, "update"),
                f"running tasks are touched every {format_duration(worker.update)}, but are taken away "
                f"{format_duration(rescue)} after their last touch",
                "give less than half of manager.max_update",
            )
    yield from find_schedule_problems(settings, source)


def _duplicate_bindings(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """A connection would reach one app or the other by chance."""
    taken: dict[SocketAddress, str] = {}
    for name, web in settings.web.items():
        for bind in web.bind:
            try:
                other = taken.setdefault(parse_bind_address(bind), name)
            except ValueError as error:  # its path, now absolute, is too long
                yield source.problem(("web", name, "bind"), str(error))
                continue
            if other != name:
                yield source.problem(("web", name, "bind"), f"[web.{other}] listens on {bind} too", "choose another")


def find_warnings(settings: Settings, source: ConfigSource) -> list[Problem]:
    """Settings that are allowed, and probably not meant."""
    return [
        *_no_enabled_worker(settings, source),
        *_grace_too_long(settings, source),
        *_update_too_slow(settings, source),
        *_conflicting_max_attempts(settings, source),
        *find_schedule_warnings(settings, source),
        *_keep_alive_beyond_grace(settings, source),
        *_reused_ports(settings, source),
        *_cluster_settings_on_sqlite(settings, source),
        *_readable_secrets(settings, source),
    ]


def _no_enabled_worker(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    sections: tuple[Mapping[str, WorkerSettings | WebSettings | CommandSettings], ...]
    sections = (settings.workers, settings.web, settings.commands)
    if not any(kind.enabled for section in sections for kind in section.values()):
        yield source.problem(("workers",), "no worker is enabled", "this node will do maintenance, and run nothing")


def _grace_too_long(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    grace = settings.node.grace
    if grace >= SYSTEMD_STOP_TIMEOUT:
        yield source.problem(
            ("node", "grace"),
            f"systemd kills a service that takes more than {format_duration(SYSTEMD_STOP_TIMEOUT)} to stop",
            f"set TimeoutStopSec above {format_duration(grace)} in the unit, as peerd systemd does",
        )
    graces = {("workers", name): worker.grace for name, worker in settings.workers.items()}
    graces |= {("web", name): web.grace for name, web in settings.web.items()}
    for key_path, own in graces.items():
        if own is not None and own > grace:
            yield source.problem(
                (*key_path, "grace"),
                f"the node stops after {format_duration(grace)}, whatever a worker is given",
                "raise node.grace",
            )


def _keep_alive_beyond_grace(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    for name, web in settings.web.items():
        grace = settings.node.grace if web.grace is None else web.grace
        if web.keep_alive >= grace:
            yield source.problem(
                ("web", name, "keep_alive"),
                f"idle connections are kept as long as the grace of {format_duration(grace)}: "
                "a process that stops has to cut them off, and a request that is on its way is lost",
                "give less than the grace",
            )


def _reused_ports(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    for name, web in settings.web.items():
        if web.reuse_port:
            yield source.problem(
                ("web", name, "reuse_port"),
                "any program of this user may take a part of the connections, and connections in the queue of one "
                "that ends are reset",
                "leave it out, unless several nodes of one machine share the port",
            )


def _update_too_slow(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    rescue = settings.manager.max_update
    for name, worker in settings.workers.items():
        if rescue / 2 < worker.update < rescue:
            yield source.problem(
                ("workers", name, "update"),
                f"one late touch and a running task is taken away (manager.max_update is {format_duration(rescue)})",
                f"give at most {format_duration(rescue / 3)}",
            )


def _conflicting_max_attempts(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """The worker that claims a task writes its own max_attempts into it, so two values for one queue depend on luck."""
    served: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name, worker in settings.workers.items():
        for queue in (*(worker.queues or ()), *(worker.tasks or ())):
            served[queue].append((name, worker.max_attempts))
    for queue, workers in served.items():
        if len({limit for _, limit in workers}) > 1:
            first, *_, (last, _limit) = workers
            yield source.problem(
                ("workers", last, "max_attempts"),
                f"{queue} is served by {first[0]} too, with another max_attempts",
                "give both the same: the worker that claims a task decides",
            )


def _cluster_settings_on_sqlite(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    for key in ("address", "zone"):
        if is_sqlite(settings.database.url) and getattr(settings.node, key) is not None:
            yield source.problem(
                ("node", key),
                "SQLite serves one machine only: no node is on another one",
                "use MariaDB, MySQL or PostgreSQL for several machines",
            )


def _readable_secrets(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """Secrets in files that all users of the machine can read."""
    for key_path, kind, file in _secret_locations(settings, source):
        if _is_world_readable(file):
            message = f"every user of this machine can read the {kind} in {file}"
            yield source.problem(key_path, message, f"chmod o= {file}")


def _is_world_readable(path: Path) -> bool:
    """Whether a file exists with a mode that lets all users read it; folders above it are not considered."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _secret_locations(settings: Settings, source: ConfigSource) -> Iterator[tuple[KeyPath, str, Path]]:
    """The key of each secret, its kind, and the file that holds it."""
    database, cluster = settings.database, settings.cluster
    if database.password_file is not None:
        yield ("database", "password_file"), "password", database.password_file
    if cluster.secret_file is not None:
        yield ("cluster", "secret_file"), "secret", cluster.secret_file
    for name, hook in settings.alerts.items():
        if hook.mail is not None and hook.mail.password_file is not None:
            yield ("alerts", name, "mail", "password_file"), "password", hook.mail.password_file
    if settings.file is not None:
        for key_path, kind in _inline_secrets(settings):
            if key_path[:2] not in source.overridden:
                yield key_path, kind, settings.file


def _inline_secrets(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    if settings.database.password_file is None and has_password(settings.database.url):
        yield ("database", "url"), "password"
    if settings.cluster.secret_file is None and settings.cluster.secret is not None:
        yield ("cluster", "secret"), "secret"
    for name, hook in settings.alerts.items():
        if hook.webhook is not None:
            yield ("alerts", name, "webhook"), "webhook's address, which is a secret,"
