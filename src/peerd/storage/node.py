"""What the storage of a node consists of: its disks, the catalogue, and connections to other nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol, Self

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.errors import PeerdError
from peerd.doorbell.cluster_secret import read_secret
from peerd.doorbell.datagram import ClusterClock
from peerd.runtime.metrics.registry import MetricsRegistry
from peerd.runtime.observability.events import BadCopiesFound, EventBus
from peerd.storage.awaiting import AwaitedCopies
from peerd.storage.checking import (
    PRIORITIES,
    QUEUE,
    VERIFY,
    Checked,
    NewFileToCheck,
    check_files,
    check_new_files,
    read_disk_view,
    storage_task,
)
from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import CHUNKING, Digest
from peerd.storage.disk.folder_disk import FolderPlace
from peerd.storage.disk.held_folder import Marker, mark_nothing
from peerd.storage.disk.open_disk import DiskPlace
from peerd.storage.local_disks import LocalDisk, LocalDisks, absolute
from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.storage.object_disk.place import ObjectPlace
from peerd.storage.placement.brake import GRACE, DiskView
from peerd.storage.put_groups import PutGroups
from peerd.storage.running_uploads import RunningUploads
from peerd.storage.transfer.node_http import NodeHttp
from peerd.storage.transfer.node_signature import NodeSigner, NodeVerifier
from peerd.store.connection.database import Database
from peerd.store.enqueue import enqueue
from peerd.store.files.checks import lock_checks
from peerd.store.files.copies import Content, count_bad
from peerd.store.files.disks import bytes_on_disk
from peerd.store.nodes import get_node_id

VIEW_TTL: Final = 1.0
"""Seconds for which the disks are not read again."""
MAX_AGE: Final = 5.0
"""Seconds after which the disks are read again in the transaction of a decision."""
USED_TTL: Final = 60.0
"""Seconds for which the bytes of the copies on a disk are not counted again."""
SENT_AT_ONCE: Final = 12
"""Contents that are read for other nodes at the same time; others wait."""
COPIED_AT_ONCE: Final = 4
"""Contents that are copied for clients of one process at the same time; others wait."""
RELAYED_AT_ONCE: Final = 24
"""Requests that send to another node, or wait for its response, at the same time; others wait."""


class StorageOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section [storage], as the processes of a node get it.

    Attributes:
        disks: paths of this node's folders.
        object_stores: places in object stores.
        url: where other nodes reach this one.
        reserve: share of a disk that stays free.
        grace: seconds of silence after which a disk is missing.
        rate: bytes per second of one copy; None: as fast as it goes.
        scrub_every: seconds within which every copy is read and verified.
        durable_within: seconds that a put waits for the copies that its class wants before it is acknowledged.
        s3: whether the server answers requests of S3's clients too.
        s3_domain: below which the names of hosts begin with a bucket; None: buckets are in paths only.
    """

    disks: tuple[str, ...] = ()
    object_stores: tuple[ObjectDiskOptions, ...] = ()
    url: str | None = None
    reserve: float = 0.05
    grace: float = GRACE
    rate: float | None = None
    scrub_every: float = 30 * 86_400.0
    durable_within: float = 60.0
    s3: bool = False
    s3_domain: str | None = None


class StorageNotConfigured(PeerdError):
    """This process has no storage."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; see [storage] in peerd.toml")


class Rings(Protocol):
    """What wakes workers."""

    def ring(self, *queues: str) -> None:
        """Wake those of these queues."""


class UsedBytes:
    """The bytes of the copies on a disk, by the catalogue, counted at most once a minute.

    Args:
        database: with the catalogue.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counted: dict[str, tuple[float, int]] = {}

    def __call__(self, identity: str) -> int:
        """Count the contents on the disk of this identity."""
        counted_at, count = self._counted.get(identity, (0.0, 0))
        if not counted_at or time.monotonic() - counted_at > USED_TTL:
            count = self._database.read(bytes_on_disk, identity)
            self._counted[identity] = time.monotonic(), count
        return count


class StorageNode:
    """The storage of this node; thread-safe.

    Args:
        database: with the catalogue.
        name: of the node.
        options: of [storage].
        base: the folder that relative paths are below.
        secret: of the cluster.
        rings: wakes workers.
        at: called before and after each step that changes a disk, for tests of interruptions.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        options: StorageOptions,
        base: Path,
        secret: str,
        rings: Rings,
        *,
        at: Marker = mark_nothing,
    ) -> None:
        self.database = database
        self.events = EventBus()
        """The metrics; `of_process` sets those of the process."""
        self.metrics = MetricsRegistry()
        """What is counted; as `events`."""
        self.name = name
        self.options = options
        self.node_id = database.read(get_node_id, name)
        self.disks = LocalDisks(
            database,
            self._places(options, base, at),
            node_id=self.node_id,
            url=options.url,
            reserve=options.reserve,
            grace=options.grace,
        )
        self.secret = secret
        self.clock = ClusterClock()
        self.verifier = NodeVerifier(secret, self.clock, options.url or "")
        self.http = NodeHttp(NodeSigner(secret, self.clock))
        self.random = Random()
        self.copying = ThreadPoolExecutor(COPIED_AT_ONCE, thread_name_prefix="peerd-copy")
        """Threads in which contents are copied on a disk for clients, so that other requests need not wait."""
        self.sending = ThreadPoolExecutor(SENT_AT_ONCE, thread_name_prefix="peerd-contents")
        """Threads in which contents are read for other nodes. They wait for disks alone: nodes whose other threads all
        read from each other would else wait in a ring."""
        self.relaying = ThreadPoolExecutor(RELAYED_AT_ONCE, thread_name_prefix="peerd-relay")
        """Threads that relay requests to other nodes, for the same reason: what is relayed is not relayed again."""
        self.running_uploads = RunningUploads()
        self.awaited = AwaitedCopies(database, self.view)
        self.puts = PutGroups(database, self.view, self.check, self.check_new)
        self._rings = rings
        self._view: tuple[float, DiskView] | None = None
        self._lock = threading.Lock()

    @classmethod
    def of_process(cls, process: Any) -> Self:
        """The storage of the node whose process this is, from the options of its section.

        Raises:
            StorageNotConfigured: the process has no such options, or there is no secret.
        """
        client = process.client
        options, base = parse_options(process.options)
        secret = read_secret(client.database.url, client.notifier.secret, make=True)
        if secret is None:
            raise StorageNotConfigured(
                "nodes cannot prove to each other that they are of one cluster: set [cluster] secret"
            )
        node = cls(client.database, process.node, options, base, secret, client)
        node.events, node.metrics = process.events, process.metrics
        return node

    def _places(self, options: StorageOptions, base: Path, at: Marker) -> list[DiskPlace]:
        """Where disks are: this is the only place that knows their kinds."""
        used = UsedBytes(self.database)
        folders = [FolderPlace(path, at) for path in absolute(options.disks, base)]
        return [*folders, *(ObjectPlace(one, used) for one in options.object_stores)]

    def view(self, *, fresh: bool = False) -> DiskView:
        """The disks as decisions see them, read at most a second ago."""
        present = time.monotonic()
        with self._lock:
            if self._view is not None and not fresh and present - self._view[0] < VIEW_TTL:
                return self._view[1]
        view = self.database.read(read_disk_view, self.options.grace)
        with self._lock:
            self._view = (present, view)
        return view

    def check(self, connection: Connection, file_ids: Sequence[int], view: DiskView) -> Checked:
        """Decide what files need that have a check, in the caller's transaction; `ring` afterwards."""
        return self.decide(connection, lock_checks(connection, file_ids), view)

    def check_new(self, connection: Connection, new_files: Sequence[NewFileToCheck], view: DiskView) -> Checked:
        """Decide what files need that the caller's transaction has entered; `ring` afterwards."""
        return check_new_files(connection, new_files, self._recent(connection, view), self.random, self.options.grace)

    def decide(self, connection: Connection, locked: Sequence[int], view: DiskView) -> Checked:
        """Decide what files need whose checks are locked already; see `check`."""
        return check_files(connection, locked, self._recent(connection, view), self.random, self.options.grace)

    def _recent(self, connection: Connection, view: DiskView) -> DiskView:
        """The view, or, if the process stood still since it was read, another: no decision is taken by what was."""
        with self._lock:
            known = self._view
        if known is None or known[1] is not view or time.monotonic() - known[0] > MAX_AGE:
            return read_disk_view(connection, self.options.grace)
        return view

    def request_verification(self, disk_id: int, file_id: int) -> None:
        """Have a copy read and verified by its node, soon."""
        disk = self.view().disks.get(disk_id)
        if disk is None:
            return
        key = f"verify {disk_id} {file_id:016x}"
        self.database.run(enqueue, storage_task(VERIFY, disk, [file_id], PRIORITIES[1], key))
        self.ring()

    def report_bad_copies(self, disk: LocalDisk, contents: Sequence[int], found_by: str) -> None:
        """Copies on a disk of this node were found to be damaged or missing, by `verification` or `reading`."""
        files = tuple(f"{content:016x}" for content in contents)
        path = disk.opened.name
        bad = self.database.read(count_bad, disk.number)
        self.events.emit(BadCopiesFound(disk=disk.number, path=path, files=files, bad=bad, found_by=found_by))

    def ring(self) -> None:
        """Wake the workers that copy and remove."""
        self._rings.ring(QUEUE)


def parse_options(given: Mapping[str, Any]) -> tuple[StorageOptions, Path]:
    """The options of a process, and the project's folder.

    Raises:
        StorageNotConfigured: they are none of storage.
    """
    values = dict(given)
    base = values.pop("project_directory", None)
    try:
        return msgspec.convert(values, StorageOptions), Path(base or Path.cwd())
    except msgspec.ValidationError as error:
        raise StorageNotConfigured(f"the options of this process are wrong: {error}") from error


def digest_in_catalogue(content: Content) -> Digest:
    """The digest that a content has by the catalogue."""
    size = content.chunk_size or CHUNKING.chunk_size(content.size)
    hashes = content.chunks
    chunks = tuple(hashes[at : at + 32] for at in range(0, len(hashes), 32))
    return Digest(content.size, bytes.fromhex(content.blake3), size, chunks)


def content_ids(texts: Sequence[str]) -> list[ContentId]:
    """Ids from a task's body; raises ValueError for other texts."""
    return [ContentId(int(text, 16)) for text in texts]
