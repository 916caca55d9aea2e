"""Disks of nodes: which there are, and what each is used for."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.file_errors import DiskIsLost, DiskIsOnline, DiskOfOtherNode, InvalidFile
from peerd.domain.files import DiskKind, DiskState
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.storage.checking import read_disk_view
from peerd.storage.overview import count_last_copies
from peerd.storage.placement.balance import Balance
from peerd.store.audit import State, disk_state
from peerd.store.files import disks
from peerd.store.files.disks import DiskCopies
from peerd.store.files.risks import FileCount
from peerd.store.files.walks import REBALANCE, begin_rebalance, stop_rebalance
from peerd.store.nodes import get_node_id

Disks = list[DiskCopies]


class DiskBalance(msgspec.Struct, frozen=True, kw_only=True):
    """How full a disk is beside all disks together.

    Attributes:
        used_share: the part of it that is in use, or promised to planned copies.
        mean: the same of all disks together.
        excess: bytes by which it is fuller.
        is_too_full: whether copies would be moved from it.
        is_rebalanced: whether copies are moved from it now.
    """

    id: int
    node: str | None
    path: str
    used_share: float
    mean: float
    excess: int
    is_too_full: bool
    is_rebalanced: bool


Balances = list[DiskBalance]
IDENTITY: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
MAX_PATH: Final = 4096


class DiskOperations(OperationGroup[Mode]):
    """``client.disks``. What names a disk raises `DiskNotFound` where no disk has the number."""

    subject = "disks"

    @operation
    def list(self) -> Query[Disks]:
        """All disks by number, without counts of their copies, which `files.usage` has."""
        return Query("read", _list_disks)

    @operation
    def register(self, identity: str, *, path: str, node: str, move: bool = False) -> Query[int]:
        """Enter a disk into the catalogue, which ``peerd files disks add`` has made on its node.

        Args:
            identity: of the disk, 32 hexadecimal digits.
            path: of its folder.
            node: the name of its node.
            move: whether it may be a disk of another node, which was moved here.

        Returns:
            its number; if it is known, the one that it has.

        Raises:
            InvalidFile: the identity or the path cannot be one.
            NodeNotFound: no node has ever registered under this name.
            DiskIsLost: it was declared lost.
            DiskOfOtherNode: it is one, and ``move`` is not set.
        """
        _check_identity(identity)
        _check_path(path)
        query = Query("run", _register, identity, path, validation.node(node), move=move)
        return query.making("disk", lambda number: (str(number), _registered(path)))

    @operation
    def register_object_store(self, identity: str, *, place: str) -> Query[int]:
        """Enter a disk in an object store, which ``peerd files disks add --object-store`` has made, for all nodes.

        Args:
            identity: of the disk, 32 hexadecimal digits.
            place: the address of the object store, the bucket and the prefix.

        Returns:
            its number; if it is known, the one that it has.

        Raises:
            InvalidFile: the identity or the place cannot be one.
            DiskIsLost: it was declared lost.
        """
        _check_identity(identity)
        _check_path(place, "place")
        query = Query("run", _register_object_store, identity, place)
        return query.making("disk", lambda number: (str(number), _registered(place)))

    @operation
    def activate(self, number: int) -> Query[DiskCopies]:
        """Use a disk for copies, also one that was drained or read only.

        Raises:
            DiskIsLost: it was declared lost.
        """
        return self._set_state(number, DiskState.ACTIVE)

    @operation
    def readonly(self, number: int) -> Query[DiskCopies]:
        """Keep the copies of a disk, and read them, but make no new ones on it.

        Raises:
            DiskIsLost: it was declared lost.
        """
        return self._set_state(number, DiskState.READONLY)

    @operation
    def drain(self, number: int) -> Query[DiskCopies]:
        """Make the copies of a disk anew on others, and then remove them from it.

        Raises:
            DiskIsLost: it was declared lost.
        """
        return self._set_state(number, DiskState.DRAIN)

    @operation
    def lost(self, number: int) -> Query[DiskCopies]:
        """Declare that a disk will not come back: its copies do not exist any more. There is no way back.

        Raises:
            DiskIsOnline: its node reports it, and it has no problem.
        """
        return self._set_state(number, DiskState.LOST)

    @operation
    def last_copies(self, number: int) -> Query[FileCount]:
        """How many files have no other copy that can be read now: what declaring the disk lost would lose."""
        return Query("read", count_last_copies, validation.number("disk", number, 0))

    @operation
    def balance(self) -> Query[Balances]:
        """How full each disk is that can get copies, beside all of them together."""
        return Query("read", _read_balance)

    @operation
    def rebalance(self) -> Query[Balances]:
        """Move copies from the disks that are fuller than the others, some at a time, until they are not.

        A disk may be fuller than all together by a twentieth of its size. Nothing is moved while many files wait to be
        repaired. It can be repeated.

        Returns:
            `balance`, of the disks from which copies are moved.
        """
        return Query("run", _begin_rebalance).acting_on("disk", "all")

    @operation
    def stop_rebalance(self) -> Query[int]:
        """Move no more copies. Moves that have begun are finished.

        Returns:
            from how many disks copies were moved.
        """
        return Query("run", stop_rebalance).acting_on("disk", "all")

    @operation
    def remove(self, number: int) -> Query[None]:
        """Remove a disk without copies from the catalogue.

        Raises:
            DiskHasCopies: it has copies.
        """
        disk = validation.number("disk", number, 0)
        return Query("run", disks.remove_disk, disk).acting_on("disk", disk, disk_state, disk)

    def _set_state(self, number: int, state: DiskState) -> Query[DiskCopies]:
        disk = validation.number("disk", number, 0)
        return Query("run", _set_state, disk, state).acting_on("disk", disk, disk_state, disk)


def _check_identity(value: object) -> None:
    if not isinstance(value, str) or not IDENTITY.fullmatch(value):
        raise InvalidFile("identity", "it is no identity of a disk: 32 hexadecimal digits")


def _check_path(value: object, name: str = "path") -> None:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_PATH or not value.isprintable():
        raise InvalidFile(name, f"it is no {name}: 1 to {MAX_PATH} printable characters")


def _list_disks(connection: Connection) -> Disks:
    return disks.list_disk_copies(connection, counted=False)


def _registered(path: str) -> State:
    return {"state": DiskState.ACTIVE.value, "path": path}


def _register(connection: Connection, identity: str, path: str, node: str, *, move: bool) -> int:
    node_id = get_node_id(connection, node)
    number = _usable(connection, disks.register_disk(connection, identity, path=path, node_id=node_id))
    disk = disks.get_disk(connection, number)
    if disk.node_id != node_id and not move:
        raise DiskOfOtherNode(number, disk.node, disk.path, node)
    return number


def _register_object_store(connection: Connection, identity: str, place: str) -> int:
    number = disks.register_disk(connection, identity, path=place, node_id=None, kind=DiskKind.S3)
    return _usable(connection, number)


def _usable(connection: Connection, number: int) -> int:
    """The number of a disk that is registered, if it is not lost."""
    if disks.get_disk(connection, number).state == DiskState.LOST.value:
        raise DiskIsLost(number)
    return number


def _set_state(connection: Connection, number: int, state: DiskState) -> DiskCopies:
    disk = disks.get_disk(connection, number)
    if state is not DiskState.LOST and disk.state == DiskState.LOST.value:
        raise DiskIsLost(number)
    if state is DiskState.LOST and disk.problem is None and disk.state != DiskState.LOST.value:
        view = read_disk_view(connection)
        if view.is_online(number):
            raise DiskIsOnline(number, disk.node)
    disks.set_disk_state(connection, number, state)
    [changed] = [one for one in disks.list_disk_copies(connection, counted=False) if one.id == number]
    return changed


def _read_balance(connection: Connection) -> Balances:
    rows = {row.id: row for row in disks.list_disks(connection)}
    balance = Balance(read_disk_view(connection))
    return [
        DiskBalance(
            id=disk.id,
            node=disk.node,
            path=rows[disk.id].path,
            used_share=round(disk.used_share, 6),
            mean=round(balance.mean, 6),
            excess=balance.excess(disk),
            is_too_full=balance.is_too_full(disk),
            is_rebalanced=rows[disk.id].walked_for == REBALANCE,
        )
        for disk in balance.disks
    ]


def _begin_rebalance(connection: Connection) -> Balances:
    begin_rebalance(connection, [one.id for one in _read_balance(connection) if one.is_too_full])
    return [one for one in _read_balance(connection) if one.is_rebalanced]
