"""Steps of the tests of the catalogue: a node with disks, buckets, and versions of files."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from peerd.domain.errors import PeerdError
from peerd.domain.files import StoredFile
from peerd.store import nodes as node_rows
from peerd.store.connection.database import Database
from peerd.store.files import buckets, disks, versions
from peerd.store.files.buckets import Bucket
from peerd.store.files.checks import request_checks
from peerd.store.files.disks import DiskReport
from peerd.store.files.publishing import FilePut, publish_many
from peerd.store.files.versions import UNCONDITIONAL, Condition, NewFile
from peerd.store.schema.tables import disks as disk_table
from peerd.store.schema.tables import file_copies
from peerd.store.schema.types import seconds_from_now

_file_ids = count(1)
HASH = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
"""BLAKE3 of nothing."""
GIGABYTE = 10**9


def publish(connection: Connection, bucket: Bucket, new: NewFile, condition: Condition) -> StoredFile:
    """Make a version current, as a put alone, and have it checked."""
    [outcome] = publish_many(connection, [FilePut(bucket, new, condition)])
    if isinstance(outcome, PeerdError):
        raise outcome
    if outcome.is_done and not outcome.was_staged:
        request_checks(connection, {new.id: versions.DANGER_OF_NEW})
    return outcome.current


class Catalogue:
    """A database with disks, buckets and files of the test.

    Args:
        store: a database with the tables.
        nodes: ids of nodes that it has already, by name.
    """

    def __init__(self, store: Database, nodes: Mapping[str, int] | None = None) -> None:
        self.store = store
        self._nodes = dict(nodes or {})

    def node(self, name: str, zone: str | None = None) -> int:
        if name not in self._nodes:
            register = node_rows.register_incarnation
            incarnation = node_rows.new_incarnation()
            node_id = self.store.run(register, name, incarnation, replaces=None, zone=zone, address=f"{name}:7000")
            assert node_id is not None
            self._nodes[name] = node_id
        return self._nodes[name]

    def disk(self, node: str, zone: str | None = None, *, free: int = GIGABYTE, silent_for: float = 0.0) -> int:
        """A disk that its node has just reported, or some time ago."""
        identity = uuid.uuid4().hex
        number = self.store.run(disks.register_disk, identity, path=f"/srv/{node}", node_id=self.node(node, zone))
        report = DiskReport(identity=identity, path=f"/srv/{node}", size=2 * GIGABYTE, free=free, reserve=0)
        assert self.store.run(disks.report_disk, self.node(node), report, 900.0) is not None
        if silent_for:
            self.silence(number, silent_for)
        return number

    def silence(self, disk: int, seconds: float) -> None:
        self.change(disk_table, disk_table.c.id == disk, seen_at=seconds_from_now(-seconds))

    def bucket(self, name: str = "films", **more: Any) -> Bucket:
        return self.store.run(buckets.create_bucket, name, **more)

    def put(
        self, bucket: Bucket, key: str, disk: int, size: int = 10, condition: Condition = UNCONDITIONAL, **more: Any
    ) -> StoredFile:
        return self.publish(bucket, self.new(key, disk, size, **more), condition)

    def publish(self, bucket: Bucket, new: NewFile, condition: Condition = UNCONDITIONAL) -> StoredFile:
        while True:
            with suppress(IntegrityError):  # a put of the same new key was faster
                return self.store.run(publish, bucket, new, condition)

    def new(self, key: str, disk: int, size: int = 10, **more: Any) -> NewFile:
        values = {"id": next(_file_ids), "class_name": "default", "blake3": HASH, **more}
        return NewFile(key=key, disk_id=disk, size=size, **values)

    def find(self, bucket: Bucket, key: str) -> StoredFile | None:
        return self.store.read(versions.find_file, bucket, key)

    def copies(self, file_id: int) -> dict[int, str]:
        """The state of each copy, by disk."""
        found = sa.select(file_copies.c.disk_id, file_copies.c.state).where(file_copies.c.file_id == file_id)
        return {disk: str(state) for disk, state in self.store.read(lambda c: c.execute(found).all())}

    def set_copy(self, file_id: int, disk: int, state: str) -> None:
        is_it = sa.and_(file_copies.c.file_id == file_id, file_copies.c.disk_id == disk)
        self.change(file_copies, is_it, state=state)

    def count(self, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
        counted = sa.select(sa.func.count()).select_from(table).where(*conditions)
        return int(self.store.read(lambda connection: connection.execute(counted).scalar_one()))

    def change(self, table: sa.Table, condition: sa.ColumnElement[bool], **values: Any) -> None:
        statement = sa.update(table).where(condition).values(**values)
        self.store.run(lambda connection: connection.execute(statement).close())
