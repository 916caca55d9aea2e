"""The section [storage], as the kinds of processes that a node with disks runs: a server, copiers and a manager."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import asdict, replace

from peerd.config.address import is_sqlite
from peerd.config.problems import Problem
from peerd.config.security import find_tls_problems
from peerd.config.settings import Settings, StorageSettings, WebSettings, WorkerSettings
from peerd.config.source import ConfigSource
from peerd.domain.bind_address import TcpAddress, parse_bind_address
from peerd.domain.files import STORAGE_KINDS

WITHOUT_SHARED: Final = "peerd.storage.worker:storage"
WITH_SHARED: Final = "peerd.storage.worker:storage_with_shared_disks"
COPIERS, MANAGER, SERVER = STORAGE_KINDS
EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - what the configuration may say
GIVEN_TO_PROCESSES: Final = ("reserve", "grace", "rate", "scrub_every", "durable_within", "s3", "s3_domain")
"""Keys that the processes of storage get as they are."""
MIN_BODY_RATE: Final = 1_000
"""Bytes per second of a put, at least."""


def with_storage(settings: Settings) -> Settings:
    """The settings with the kinds of processes of storage, if this node has disks."""
    storage = settings.storage
    if not storage.disks and not storage.object_stores:
        return settings
    options = _options(settings, storage)
    copiers = WorkerSettings(
        tasks=(WITH_SHARED if storage.object_stores else WITHOUT_SHARED,),
        count=storage.copies_at_once,
        options=options,
        given=("count", "options"),
    )
    manager = WorkerSettings(worker="peerd.storage.worker:StorageManager", options=options, given=("options",))
    server = WebSettings(
        app="peerd.storage.server.app:app",
        bind=storage.bind,
        tls_certificate=storage.tls_certificate,
        tls_key=storage.tls_key,
        processes=storage.server_processes,
        min_body_rate=MIN_BODY_RATE,
        options=options,
    )
    return replace(
        settings,
        workers={**settings.workers, COPIERS: copiers, MANAGER: manager},
        web={**settings.web, SERVER: server},
    )


def find_storage_problems(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """Settings that keep [storage] from working, and kinds that have the names of its processes."""
    if settings.storage.s3_domain is not None and not settings.storage.s3:
        yield source.problem(("storage", "s3_domain"), "it has no effect without S3", "set s3 = true, or remove it")
    if not settings.storage.disks and not settings.storage.object_stores:
        return
    values: dict[str, Any] = source.values
    for section, name in (("workers", COPIERS), ("workers", MANAGER), ("web", SERVER)):
        if name in (values.get(section) or {}):
            yield source.problem((section, name), "[storage] runs processes of this name", "choose another name")
    if not is_sqlite(settings.database.url) and settings.cluster.secret is None:
        remedy = "write the same secret on every node: [cluster] secret_file"
        yield source.problem(("storage", "disks"), "nodes cannot prove to each other that they are nodes", remedy)
    yield from find_tls_problems(("storage",), settings.storage, source)
    for bind in settings.storage.bind:
        address = parse_bind_address(bind)
        if not isinstance(address, TcpAddress) or address.port == 0:
            yield source.problem(("storage", "bind"), f"{bind} is no address for other nodes", "give host:port")


def _options(settings: Settings, storage: StorageSettings) -> dict[str, Any]:
    return {
        "project_directory": str(settings.project_directory),
        "disks": [str(path) for path in storage.disks],
        "object_stores": object_store_options(storage),
        "url": _url(settings, storage),
        **{key: getattr(storage, key) for key in GIVEN_TO_PROCESSES},
    }


def object_store_options(storage: StorageSettings) -> list[dict[str, Any]]:
    """The places of [storage.object_stores]; credentials are read by those that use them."""
    return [
        {**asdict(place), "name": name, "credentials_file": place.credentials_file and str(place.credentials_file)}
        for name, place in storage.object_stores.items()
    ]


def _url(settings: Settings, storage: StorageSettings) -> str | None:
    """Where other nodes reach this one."""
    scheme = "http" if storage.tls_certificate is None else "https"
    if storage.address is not None:
        return storage.address if "://" in storage.address else f"{scheme}://{storage.address}"
    address = parse_bind_address(storage.bind[0])
    if not isinstance(address, TcpAddress):
        return None
    host = address.host
    if host in EVERY_ADDRESS:
        host = settings.node.address or socket.gethostname()
    return f"{scheme}://[{host}]:{address.port}" if ":" in host else f"{scheme}://{host}:{address.port}"
