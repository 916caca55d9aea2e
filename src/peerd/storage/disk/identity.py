"""Which disk a folder is: the file peerd-disk.json, which is made once and never repaired.

A folder without it, or with another one, is most likely the empty mount point of a disk that is not mounted, or the
mount of another disk: it is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peerd.domain.quoting import quoted
from peerd.storage.disk.errors import DiskNotEmpty, NotADisk, UnexpectedEntry, WrongDisk, disk_error
from peerd.storage.disk.held_folder import DiskSteps, HeldFolder, Marker, mark_nothing

IDENTITY_FILE: Final = "peerd-disk.json"
NEW_IDENTITY_FILE: Final = f"{IDENTITY_FILE}.new"
"""Its name until it is complete; a creation that is killed at its last step leaves both names."""

FOLDERS: Final = ("contents", "parts", "quarantine")
PERMITTED: Final = frozenset({"lost+found"})
"""Names in the root of a disk that the file system itself makes."""

_FORMAT: Final = 1
_MAX_LENGTH: Final = 4096
_HEX: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class DiskIdentity:
    """The disk and its cluster: 32 hexadecimal digits each."""

    disk: str
    cluster: str

    def __post_init__(self) -> None:
        for field, value in (("disk", self.disk), ("cluster", self.cluster)):
            if not _HEX.fullmatch(value):
                raise ValueError(f"{quoted(value)} is no id of a {field}: 32 lower-case hexadecimal digits")

    def __str__(self) -> str:
        return f"disk {self.disk} of cluster {self.cluster}"


def create_disk(path: Path, cluster: str, *, at: Marker = mark_nothing) -> DiskIdentity:
    """Make a disk in an empty folder; when this was interrupted, it can be repeated.

    Args:
        path: an existing folder; only lost+found may be in it.
        cluster: the id of the cluster, 32 hexadecimal digits.
        at: called before and after each step, for tests of interruptions.

    Raises:
        NotADisk: there is no such folder.
        DiskNotEmpty: something is in it, perhaps a disk.
        DiskError: it could not be written.
        ValueError: the id of the cluster is none.
    """
    identity = DiskIdentity(secrets.token_hex(16), cluster)
    with open_root(path, DiskSteps(str(path), at)) as root:
        with root.steps.read("locking", "."):
            fcntl.flock(root.fd, fcntl.LOCK_EX)
        _refuse_unless_empty(root)
        for name in FOLDERS:
            root.make(name)
        _write_identity(root, identity)
    return identity


def open_root(path: Path, steps: DiskSteps) -> HeldFolder:
    """Hold the folder at a path, in which links are followed: the operator has configured it.

    Raises:
        NotADisk: there is no such folder.
    """
    try:
        return HeldFolder(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), "", steps)
    except (FileNotFoundError, NotADirectoryError):
        raise NotADisk(str(path), "there is no such folder") from None
    except OSError as error:
        raise disk_error(error, str(path), "opening", ".") from error


def read_disk_identity(path: Path) -> DiskIdentity:
    """Which disk a folder is.

    Raises:
        NotADisk: it is none.
        DiskError: it could not be read.
    """
    with open_root(path, DiskSteps(str(path))) as root:
        return read_identity(root)


def read_identity(root: HeldFolder) -> DiskIdentity:
    """Which disk the folder is that is held; as `read_disk_identity`."""
    try:
        fd = root.open(IDENTITY_FILE)
    except UnexpectedEntry:
        raise NotADisk(root.steps.disk, f"{IDENTITY_FILE} is no regular file") from None
    if fd is None:
        raise NotADisk(root.steps.disk, f"it has no {IDENTITY_FILE}")
    try:
        with root.steps.read("reading", IDENTITY_FILE):
            text = os.read(fd, _MAX_LENGTH + 1)
    finally:
        os.close(fd)
    return parsed_identity(text, root.steps.disk)


def check_identity(root: HeldFolder, expected: DiskIdentity) -> None:
    """Refuse a disk that is not the expected one.

    Raises:
        NotADisk, WrongDisk: it is none, or another one.
    """
    found = read_identity(root)
    if found != expected:
        raise WrongDisk(root.steps.disk, str(expected), str(found))


def encoded_identity(identity: DiskIdentity) -> bytes:
    """The bytes of an identity file."""
    return (json.dumps({"disk": identity.disk, "cluster": identity.cluster, "format": _FORMAT}) + "\n").encode()


def parsed_identity(text: bytes, disk: str) -> DiskIdentity:
    if len(text) > _MAX_LENGTH:
        raise NotADisk(disk, f"{IDENTITY_FILE} is longer than {_MAX_LENGTH} bytes")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise NotADisk(disk, f"{IDENTITY_FILE} is not JSON") from None
    if not isinstance(fields, dict):
        raise NotADisk(disk, f"{IDENTITY_FILE} is no JSON object")
    if type(fields.get("format")) is not int or fields["format"] != _FORMAT:
        raise NotADisk(disk, f"{IDENTITY_FILE} has the format {quoted(fields.get('format'))}, known is {_FORMAT}")
    if set(fields) != {"disk", "cluster", "format"}:
        raise NotADisk(disk, f"{IDENTITY_FILE} has other fields than disk, cluster and format")
    try:
        return DiskIdentity(fields["disk"], fields["cluster"])
    except (ValueError, TypeError):
        raise NotADisk(disk, f"{IDENTITY_FILE} has a disk or a cluster that is not 32 hexadecimal digits") from None


def _refuse_unless_empty(root: HeldFolder) -> None:
    """What an interrupted creation has left is permitted: empty folders, and an identity that never came into force."""
    for name in root.names():
        if name not in PERMITTED and not _is_left_over(root, name):
            raise DiskNotEmpty(root.steps.disk, name)


def _is_left_over(root: HeldFolder, name: str) -> bool:
    status = root.status(name)
    if status is None:
        return True
    if name == NEW_IDENTITY_FILE:
        return stat.S_ISREG(status.st_mode)
    if name not in FOLDERS or not stat.S_ISDIR(status.st_mode):
        return False
    with root.enter(name) or contextlib.nullcontext() as folder:
        return folder is None or not folder.names()


def _write_identity(root: HeldFolder, identity: DiskIdentity) -> None:
    steps = root.steps
    with steps.change("unlink identity", NEW_IDENTITY_FILE), contextlib.suppress(FileNotFoundError):
        os.unlink(NEW_IDENTITY_FILE, dir_fd=root.fd)
    with _closing(root.open(NEW_IDENTITY_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL)) as fd:
        with steps.change("write identity", NEW_IDENTITY_FILE):
            os.write(fd, encoded_identity(identity))
        with steps.change("fsync identity", NEW_IDENTITY_FILE):
            os.fsync(fd)
    root.sync()  # the folders, before the file that says that they are there
    # A link, as contents are published: a file system without hard links is refused here and not at the first content.
    with steps.change("link identity", IDENTITY_FILE):
        os.link(NEW_IDENTITY_FILE, IDENTITY_FILE, src_dir_fd=root.fd, dst_dir_fd=root.fd, follow_symlinks=False)
    with steps.change("unlink identity", NEW_IDENTITY_FILE):
        os.unlink(NEW_IDENTITY_FILE, dir_fd=root.fd)
    root.sync()


@contextlib.contextmanager
def _closing(fd: int | None) -> Iterator[int]:
    assert fd is not None, "it was created"
    try:
        yield fd
    finally:
        os.close(fd)
