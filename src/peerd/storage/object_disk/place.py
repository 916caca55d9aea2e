"""A place in an object store where a disk should be; the package for it is loaded when it is used."""

from __future__ import annotations

from collections.abc import Callable

from peerd.storage.disk.identity import DiskIdentity
from peerd.storage.disk.open_disk import DiskPlace, OpenDisk
from peerd.storage.object_disk.errors import ObjectStoreSupportMissing
from peerd.storage.object_disk.options import ObjectDiskOptions


class ObjectPlace(DiskPlace):
    """A place of [storage.object_stores].

    Args:
        options: where it is.
        used: finds the bytes of all copies on the disk of an identity.
    """

    def __init__(self, options: ObjectDiskOptions, used: Callable[[str], int]) -> None:
        self.name = options.place
        self._options = options
        self._used = used

    def open(self, cluster: str) -> OpenDisk:
        """Open the disk; see `DiskPlace`. Raises ObjectStoreSupportMissing if the package is not installed."""
        try:
            from peerd.storage.object_disk.disk import open_object_disk  # noqa: PLC0415 - its package is optional
        except ImportError:
            raise ObjectStoreSupportMissing(self.name) from None
        return open_object_disk(self._options, cluster, self._used)


def create_disk_at(options: ObjectDiskOptions, cluster: str) -> DiskIdentity:
    """Make a disk at an empty place; where this cluster has made one before, return that one.

    Args:
        options: where it is.
        cluster: the id of the cluster, 32 hexadecimal digits.

    Raises:
        DiskNotEmpty: something else is there.
        ObjectStoreSupportMissing: the package is not installed.
        DiskError: it could not be written.
    """
    try:
        from peerd.storage.object_disk.disk import create_or_find_object_disk  # noqa: PLC0415 - as above
    except ImportError:
        raise ObjectStoreSupportMissing(options.place) from None
    return create_or_find_object_disk(options, cluster)
