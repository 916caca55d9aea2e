"""The errors of storage as S3's clients know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from peerd.domain import file_errors
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.storage.awaiting import TooFewDurable
from peerd.storage.disk.errors import DiskError
from peerd.storage.receiving import BodyDiffers, NoDiskHasRoom
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed
from peerd.storage.transfer.node_signature import NodeSignatureRefused

_CODE_OF: Final[Mapping[type[Exception], S3Code]] = {
    file_errors.InvalidFile: S3Code.InvalidArgument,
    file_errors.FileMissing: S3Code.NoSuchKey,
    file_errors.BucketNotFound: S3Code.NoSuchBucket,
    file_errors.BucketNotEmpty: S3Code.BucketNotEmpty,
    file_errors.FileClassNotFound: S3Code.InvalidStorageClass,
    file_errors.QuotaExceeded: S3Code.EntityTooLarge,
    file_errors.FileConditionFailed: S3Code.PreconditionFailed,
    file_errors.UploadGone: S3Code.NoSuchUpload,
    BodyDiffers: S3Code.InternalError,
    NodeSignatureRefused: S3Code.AccessDenied,
    NoDiskHasRoom: S3Code.ServiceUnavailable,
    TooFewDurable: S3Code.ServiceUnavailable,
    NoSourceLeft: S3Code.ServiceUnavailable,
    SourceFailed: S3Code.ServiceUnavailable,
    DatabaseUnavailable: S3Code.ServiceUnavailable,
    DiskError: S3Code.ServiceUnavailable,
    PeerdError: S3Code.InternalError,
}
_WITHOUT_DETAILS: Final = (
    DiskError, DatabaseUnavailable, NoSourceLeft, SourceFailed, file_errors.BucketNotFound,
    file_errors.FileClassNotFound,
)  # fmt: skip
"""Their texts name paths, hosts, copies, or what else there is, which are nothing for a client of S3."""


def as_s3_error(error: Exception) -> S3Error | None:
    """The error that a client gets; None for a fault of the program.

    >>> str(as_s3_error(file_errors.BucketNotFound("films", ["private"])))
    'there is no bucket of this name'
    """
    if isinstance(error, S3Error):
        return error
    if isinstance(error, file_errors.FileConditionFailed) and error.is_missing:
        return S3Error(S3Code.NoSuchKey, str(error))
    code = next((_CODE_OF[base] for base in type(error).__mro__ if base in _CODE_OF), None)
    if code is None:
        return None
    is_private = code is S3Code.InternalError or isinstance(error, _WITHOUT_DETAILS)
    return S3Error(code, None if is_private else str(error))
