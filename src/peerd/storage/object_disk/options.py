"""Where a disk in an object store is."""

from __future__ import annotations

from typing import Final

import msgspec

REGION: Final = "us-east-1"


class ObjectDiskOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place of [storage.object_stores].

    Attributes:
        name: by which `peerd files disks add` is given the place.
        bucket: which exists.
        endpoint: the URL of an S3-compatible object store; None: Amazon's in the region.
        prefix: that all names begin with, without slashes at its ends.
        region: that requests are signed for.
        credentials_file: see `peerd.storage.object_disk.credentials`; None: the environment.
        capacity: bytes that may be stored.
        verify_every: seconds within which every copy is read and verified; 0: never.
    """

    name: str
    bucket: str
    endpoint: str | None = None
    prefix: str = ""
    region: str = REGION
    credentials_file: str | None = None
    capacity: int = 10**12
    verify_every: float = 180 * 86_400.0

    @property
    def url(self) -> str:
        """The URL of the object store."""
        return (self.endpoint or f"https://s3.{self.region}.amazonaws.com").rstrip("/")

    @property
    def place(self) -> str:
        """The address of the disk, without anything secret.

        >>> ObjectDiskOptions(name="a", bucket="copies", endpoint="https://s3.example/", prefix="peerd").place
        's3+https://s3.example/copies/peerd'
        """
        return "s3+" + "/".join(part for part in (self.url, self.bucket, self.prefix) if part)
