"""What must hold between settings, and what is allowed but probably not meant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from peerd.config.address import is_sqlite
from peerd.config.problems import Problem
from peerd.config.reading.secret_files import find_readable_secrets
from peerd.config.reading.source import ConfigSource
from peerd.config.schedules import find_schedule_problems, find_schedule_warnings
from peerd.config.settings import CommandSettings, Settings, WebSettings, WorkerSettings
from peerd.domain.bind_address import SocketAddress, parse_bind_address
from peerd.domain.duration import format_duration

SYSTEMD_STOP_TIMEOUT = 90.0
"""DefaultTimeoutStopSec of systemd: a service that stops for longer is killed."""


def find_contradictions(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """Settings that cannot all hold: the cluster would rescue what is alive, or two listen in one place."""
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
    """Whoever accepts first would answer: connections would reach one app or the other by chance."""
    taken: dict[SocketAddress, str] = {}
    for name, web in settings.web.items():
        for bind in web.bind:
            try:
                other = taken.setdefault(parse_bind_address(bind), name)
            except ValueError as error:  # its absolute path is too long, which nobody could know before
                yield source.problem(("web", name, "bind"), str(error))
                continue
            if other != name:
                yield source.problem(("web", name, "bind"), f"[web.{other}] listens on {bind} too", "choose another")


def find_warnings(settings: Settings, source: ConfigSource) -> list[Problem]:
    """What is allowed, and worth a second look."""
    return [
        *_no_enabled_worker(settings, source),
        *_grace_too_long(settings, source),
        *_update_too_slow(settings, source),
        *_conflicting_max_attempts(settings, source),
        *find_schedule_warnings(settings, source),
        *_keep_alive_beyond_grace(settings, source),
        *_reused_ports(settings, source),
        *_cluster_settings_on_sqlite(settings, source),
        *find_readable_secrets(settings, source),
    ]


def _no_enabled_worker(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    sections: tuple[Mapping[str, WorkerSettings | WebSettings | CommandSettings], ...]
    sections = (settings.workers, settings.web, settings.commands)
    if not any(kind.enabled for section in sections for kind in section.values()):
        yield source.problem(("workers",), "no worker is enabled", "this node will keep the table, and run nothing")


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
                "a process that leaves has to cut them off, and a request that is on its way is lost",
                "give less than the grace",
            )


def _reused_ports(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    for name, web in settings.web.items():
        if web.reuse_port:
            yield source.problem(
                ("web", name, "reuse_port"),
                "any program of this user may take a part of the connections, and those that wait for one "
                "which ends are reset",
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
    """Who claims a task writes its own max_attempts into it: two answers for one queue are luck."""
    served: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name, worker in settings.workers.items():
        for what in (*(worker.queues or ()), *(worker.tasks or ())):
            served[what].append((name, worker.max_attempts))
    for what, workers in served.items():
        if len({limit for _, limit in workers}) > 1:
            first, *_, (last, _limit) = workers
            yield source.problem(
                ("workers", last, "max_attempts"),
                f"{what} is served by {first[0]} too, with another max_attempts",
                "give both the same: the one that claims a task decides",
            )


def _cluster_settings_on_sqlite(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    for key in ("address", "zone"):
        if is_sqlite(settings.database.url) and getattr(settings.node, key) is not None:
            yield source.problem(
                ("node", key),
                "SQLite serves one machine only: no other node can be near or far",
                "use MariaDB, MySQL or PostgreSQL for several machines",
            )
