"""The errors of files and disks. Each builds its text from its data: the cause, then the remedy."""

from __future__ import annotations

from collections.abc import Sequence

from peerd.domain.errors import InvalidField, PeerdError
from peerd.domain.quoting import quoted
from peerd.domain.units import format_size


class InvalidFile(InvalidField, ValueError):
    """A key, a bucket, a class or an option that no file can have; nothing was written. `field` is at fault."""


class FileMissing(PeerdError, LookupError):
    """A bucket has no file of this key."""

    def __init__(self, bucket: str, key: str) -> None:
        self.bucket = bucket
        self.key = key
        super().__init__(f"there is no file {quoted(f'{bucket}/{key}')}; peerd files ls {bucket}/ lists what there is")


class BucketNotFound(PeerdError, LookupError):
    """There is no bucket of this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = list(known)
        names = ", ".join(self.known) or "none yet"
        super().__init__(f"there is no bucket {quoted(name)}; known are: {names} (peerd files buckets create)")


class BucketExists(PeerdError):
    """A bucket of this name exists."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is a bucket {quoted(name)} already")


class BucketNotEmpty(PeerdError):
    """A bucket that has files or unfinished uploads cannot be deleted."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the bucket {quoted(name)} has files or unfinished uploads; delete them first")


class FileClassNotFound(PeerdError, LookupError):
    """There is no class of this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = list(known)
        super().__init__(
            f"there is no class {quoted(name)}; known are: {', '.join(self.known)} (peerd files classes set)"
        )


class FileClassInUse(PeerdError):
    """A class that buckets or files have cannot be removed."""

    def __init__(self, name: str, users: str) -> None:
        self.name = name
        self.users = users
        super().__init__(f"the class {quoted(name)} is in use by {users}; give them another one first")


class QuotaExceeded(PeerdError):
    """The files of a bucket would be larger than its quota; nothing was stored."""

    def __init__(self, bucket: str, quota: int, used: int, size: int) -> None:
        self.bucket = bucket
        self.quota = quota
        self.used = used
        self.size = size
        super().__init__(
            f"the bucket {quoted(bucket)} has {format_size(used)} of {format_size(quota)}, and the file has "
            f"{format_size(size)}; delete files, or raise the quota"
        )


class FileConditionFailed(PeerdError):
    """A put or a delete was to be done only if the current version is a certain one, or if there is none."""

    def __init__(self, bucket: str, key: str, problem: str, *, is_missing: bool = False) -> None:
        self.bucket = bucket
        self.key = key
        self.problem = problem
        self.is_missing = is_missing
        super().__init__(f"{quoted(f'{bucket}/{key}')}: {problem}; nothing was changed")


class DiskNotFound(PeerdError, LookupError):
    """There is no disk of this number."""

    def __init__(self, number: int, known: Sequence[int]) -> None:
        self.number = number
        self.known = list(known)
        numbers = ", ".join(map(str, self.known)) or "none yet"
        super().__init__(f"there is no disk {number}; known are: {numbers} (peerd files disks add)")


class DiskHasCopies(PeerdError):
    """A disk that has copies cannot be removed from the catalogue."""

    def __init__(self, number: int, copies: int) -> None:
        self.number = number
        self.copies = copies
        super().__init__(
            f"disk {number} has {copies} copies; drain it first (peerd files drain {number}), or, if it will never "
            f"come back, declare it lost (peerd files disks lost {number})"
        )


class DiskOfOtherNode(PeerdError):
    """A folder that is to be made a disk of a node is a disk of another one."""

    def __init__(self, number: int, node: str | None, path: str, new_node: str) -> None:
        self.number = number
        self.node = node
        self.path = path
        self.new_node = new_node
        super().__init__(
            f"it is disk {number} of node {node} ({path}); if it was moved to node {new_node} for good, give --move"
        )


class DiskIsLost(PeerdError):
    """A disk that was declared lost is not used again: its copies may have been forgotten."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(
            f"disk {number} was declared lost; empty its folder, and make a new disk of it (peerd files disks add)"
        )


class DiskIsOnline(PeerdError):
    """A disk that its node reports is not declared lost by mistake."""

    def __init__(self, number: int, node: str | None) -> None:
        self.number = number
        self.node = node
        super().__init__(
            f"disk {number} is not lost: node {node} reports it; drain it (peerd files drain {number}), or stop the "
            "node first"
        )


class AccessKeyNotFound(PeerdError, LookupError):
    """There is no access key of this id."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(f"there is no access key {quoted(key_id)}; list them: peerd files keys list")


class UploadGone(PeerdError, LookupError):
    """An upload in parts was completed or aborted."""

    def __init__(self, upload_id: str) -> None:
        self.upload_id = upload_id
        super().__init__(f"there is no upload {quoted(upload_id)}: it was completed or aborted, or never began")


class UploadPositionDiffers(PeerdError):
    """A part of an upload does not begin where the bytes end that are durable."""

    def __init__(self, upload_id: str, offset: int, received: int) -> None:
        self.upload_id = upload_id
        self.offset = offset
        self.received = received
        super().__init__(
            f"the upload {quoted(upload_id)} has {received:,} bytes, so that a part at byte {offset:,} does not fit; "
            "ask how many it has, and go on there"
        )


class DiskTakesNoMore(PeerdError):
    """The disk that has the bytes of an upload is full, or has failed; nothing is added to the upload."""

    def __init__(self, upload_id: str, problem: str) -> None:
        self.upload_id = upload_id
        self.problem = problem
        super().__init__(f"the disk of the upload {quoted(upload_id)} takes no more: {problem}; begin another one")


class NoClusterSecret(PeerdError):
    """Nodes cannot know that a request is of their cluster."""

    def __init__(self) -> None:
        super().__init__(
            "there is no secret of the cluster to sign requests with; set [cluster] secret as the nodes have it "
            "(on SQLite: start a node once, which makes it beside the database)"
        )


class NoNodeTakes(PeerdError):
    """No node has taken a put. Nothing was stored."""

    def __init__(self, path: str, problems: list[str]) -> None:
        self.path = path
        self.problems = problems
        tried = "; ".join(problems) or "no disk is online, active, and has room for it"
        super().__init__(f"no node takes {quoted(path)}: {tried} (peerd files disks list)")


class PutRefused(PeerdError):
    """A node has refused a put for a reason for which all others would refuse it, too."""

    def __init__(self, url: str, code: str, problem: str) -> None:
        self.url = url
        self.code = code
        self.problem = problem
        super().__init__(problem)


class UploadBroken(PeerdError):
    """The connection to a server has ended before a put was acknowledged, again and again if it could be repeated."""

    def __init__(self, path: str, problem: str, tries: int) -> None:
        self.path = path
        self.problem = problem
        self.tries = tries
        remedy = (
            f"it was sent {tries} times; put it again (what is durable of a large file is not sent again)"
            if tries > 1
            else "its source can be read once only: put it again from a file, which is sent again by itself"
        )
        super().__init__(f"{quoted(path)} was not acknowledged, and is there whole or not at all: {problem}; {remedy}")


class FileReplaced(PeerdError):
    """A file was replaced or removed while it was read."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{quoted(path)} was replaced or removed while it was read; get it again")


class ContentDiffers(PeerdError):
    """What was transferred is not what was meant, by its BLAKE3."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{quoted(path)}: {problem}")
