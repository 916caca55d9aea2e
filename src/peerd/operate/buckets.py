"""Buckets, and classes of files: sets of files with a quota, and how files are kept."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from peerd.domain.file_errors import InvalidFile
from peerd.domain.files import DEFAULT_CLASS, MAX_COPIES, FileClass
from peerd.domain.units import parse_size
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.store.audit import bucket_state, file_class_state
from peerd.store.files import buckets, classes
from peerd.store.files.buckets import Bucket, BucketUsage

Buckets = list[BucketUsage]
FileClasses = list[FileClass]


class BucketOperations(OperationGroup[Mode]):
    """``client.buckets``."""

    subject = "buckets"

    @operation
    def list(self) -> Query[Buckets]:
        """All buckets by name, with the number and the bytes of their files."""
        return Query("read", buckets.list_bucket_usage)

    @operation
    def create(self, name: str, *, class_name: str = DEFAULT_CLASS, quota: int | str | None = None) -> Query[Bucket]:
        """Create a bucket.

        Args:
            name: 3 to 63 of a-z, 0-9, - and single dots.
            class_name: the class of files that are put without one.
            quota: the most bytes of its files, such as "500GB"; None: no limit.

        Raises:
            InvalidFile: its name or its quota is wrong.
            FileClassNotFound: there is no such class.
            BucketExists: there is one of this name.
        """
        bucket, kept = validation.text("bucket", name), validation.text("class", class_name)
        query = Query("run", buckets.create_bucket, bucket, kept, _quota(quota))
        return query.acting_on("bucket", bucket, bucket_state, bucket)

    @operation
    def change(
        self, name: str, *, class_name: str | None = None, quota: int | str | None = None, no_quota: bool = False
    ) -> Query[Bucket]:
        """Change the class of files that are put from now on, or the quota.

        Args:
            name: the bucket's.
            class_name: None: as it is.
            quota: None: as it is.
            no_quota: remove the quota.

        Raises:
            BucketNotFound, FileClassNotFound: there is no such bucket, or class.
            InvalidFile: the quota is wrong, or there is nothing to change.
        """
        bucket, kept = validation.text("bucket", name), validation.text_or_none("class", class_name)
        if class_name is None and quota is None and not no_quota:
            raise InvalidFile("bucket", "nothing is to be changed; give class_name, quota or no_quota")
        if quota is not None and no_quota:
            raise InvalidFile("quota", "give quota or no_quota, not both")
        query = Query("run", buckets.change_bucket, bucket, class_name=kept, quota=_quota(quota), no_quota=no_quota)
        return query.acting_on("bucket", bucket, bucket_state, bucket)

    @operation
    def delete(self, name: str) -> Query[None]:
        """Delete a bucket that has no files and no unfinished uploads.

        Raises:
            BucketNotFound: there is no such bucket.
            BucketNotEmpty: it has files or unfinished uploads.
        """
        bucket = validation.text("bucket", name)
        return Query("run", buckets.delete_bucket, bucket).acting_on("bucket", bucket, bucket_state, bucket)


class FileClassOperations(OperationGroup[Mode]):
    """``client.file_classes``."""

    subject = "file_classes"

    @operation
    def list(self) -> Query[FileClasses]:
        """All classes by name; there is always one that is called default."""
        return Query("read", classes.list_classes)

    @operation
    def set(
        self, name: str, *, copies: int = 2, durable: int = 1, zones: int = 1, object_copies: int | None = None
    ) -> Query[FileClass]:
        """Create a class, or change one. Files that have it are checked by `files.fsck`.

        Args:
            name: 1 to 63 of a-z, 0-9, - and _.
            copies: how many copies a file has, each on another node.
            durable: how many of them exist before a put is acknowledged.
            zones: on how many zones the copies are, as far as there are so many; an object store is one of its own.
            object_copies: how many of the copies are in object stores, and the others in folders; None: anywhere.

        Raises:
            InvalidFile: its name is wrong, or the numbers do not fit together.
        """
        numbers = {"copies": copies, "durable": durable, "zones": zones}
        checked = {field: validation.number(field, number, 1, MAX_COPIES) for field, number in numbers.items()}
        in_objects = None if object_copies is None else validation.number("object_copies", object_copies, 0, MAX_COPIES)
        wanted = FileClass(name=validation.text("class", name), object_copies=in_objects, **checked)
        return Query("run", _set_class, wanted).acting_on("file class", wanted.name, file_class_state, wanted.name)

    @operation
    def remove(self, name: str) -> Query[None]:
        """Remove a class that no bucket and no file has; ``default`` gets its first values again.

        Raises:
            FileClassNotFound: there is none.
            FileClassInUse: a bucket or a file has it.
        """
        kept = validation.text("class", name)
        return Query("run", classes.remove_class, kept).acting_on("file class", kept, file_class_state, kept)


def _quota(quota: int | str | None) -> int | None:
    if quota is None or (isinstance(quota, int) and not isinstance(quota, bool)):
        return quota
    try:
        return parse_size(quota)
    except (ValueError, TypeError) as error:
        raise InvalidFile("quota", str(error)) from None


def _set_class(connection: Connection, wanted: FileClass) -> FileClass:
    classes.set_class(connection, wanted)
    return wanted
