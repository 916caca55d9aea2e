"""The errors of disks in object stores. Their texts name the place and the code of the answer, nothing else of it."""

from __future__ import annotations

import re
from typing import Final

from peerd.domain.quoting import quoted
from peerd.storage.disk.errors import DiskBusy, DiskError, RemoteDiskError

_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_THROTTLED: Final = frozenset(
    {"SlowDown", "ServiceUnavailable", "RequestLimitExceeded", "TooManyRequests", "Throttling"}
)
HEAD: Final = "head"
"""The action whose answers have no document."""
_REFUSED: Final = frozenset({
    "AccessDenied", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch",
})  # fmt: skip


class ObjectStoreError(RemoteDiskError):
    """A request to an object store has failed: `action` at `place`; `problem` is the code of the answer."""

    _sentence = "the object store {place} has failed ({step}); look into its log, and try again later"

    def __init__(self, place: str, action: str, problem: str) -> None:
        self.place = place
        self.action = action
        self.problem = problem
        super().__init__(self._sentence.format(place=quoted(place), step=f"{action}: {problem}"))


class ObjectStoreUnreachable(ObjectStoreError):
    """There was no answer, or none in time, or one of a server before it that cannot reach it."""

    _sentence = (
        "the object store {place} cannot be reached ({step}); check its address, the network and its certificate"
    )


class ObjectStoreThrottled(ObjectStoreError, DiskBusy):
    """An object store answers that there are too many requests, also after some tries."""

    _sentence = "the object store {place} refuses more requests ({step}); wait, or raise its limits"


class CredentialsRefused(ObjectStoreError):
    """The credentials are wrong, or may not do this."""

    _sentence = "the object store {place} refuses the credentials ({step}); check them, their rights, and the clock"


class CredentialsMissing(DiskError):
    """There are no credentials for an object store; `problem` says where they were looked for."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(
            f"there are no credentials for the object store {quoted(place)}: {problem}; write credentials_file, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )


class BucketMissing(ObjectStoreError):
    """There is no such bucket."""

    _sentence = "the object store {place} has no such bucket ({step}); create it, or write the name of the right one"


class ObjectStoreSupportMissing(DiskError):
    """The package for object stores is not installed."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(f"the disk {quoted(place)} needs a package that is missing: pip install 'peerd[s3]'")


def object_store_error(error: Exception, place: str, action: str) -> ObjectStoreError:
    """The error that an answer, or its absence, means.

    Args:
        error: of obstore, whose text has the answer.
        place: the address of the disk.
        action: what was asked for, as a noun: "put".

    >>> text = "status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>"
    >>> type(object_store_error(Exception(text), "s3://b", "put")).__name__
    'CredentialsRefused'
    """
    text = str(error).partition("Debug source:")[0]
    code, status = _CODE.search(text), _STATUS.search(text)
    if status is None and code is None:
        return ObjectStoreUnreachable(place, action, "no answer" if "HTTP error" in text else type(error).__name__)
    return error_of_response(int(status[1]) if status else 200, text, place, action)


def error_of_response(number: int, text: str, place: str, action: str) -> ObjectStoreError:
    """The error that a response means.

    Args:
        number: its status.
        text: its body, or more.
        place: the address of the disk.
        action: see `object_store_error`.
    """
    code = _CODE.search(text)
    name = code[1] if code else ""
    problem = f"{number} {name}".rstrip()
    kind: type[ObjectStoreError] = ObjectStoreError
    if name == "NoSuchBucket":
        kind = BucketMissing
    elif number == 503 and not name and action != HEAD:
        kind = ObjectStoreUnreachable  # of S3 it would have a code; to HEAD there is never one
    elif name in _THROTTLED or number in {429, 503}:
        kind = ObjectStoreThrottled
    elif name in _REFUSED or number in {401, 403}:
        kind = CredentialsRefused
    return kind(place, action, problem)
