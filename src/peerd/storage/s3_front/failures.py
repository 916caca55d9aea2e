"""The errors of storage as S3's clients know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from peerd.domain import file_errors
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.storage.awaiting import TooFewDurable
from peerd.storage.disk.errors import DiskError
from peerd.storage.receiving import BodyDiffers, NoDiskHasRoom
from peerd.storage.s3 import errors as s3
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed
from peerd.storage.transfer.node_signature import NodeSignatureRefused

_S3_ERROR_OF: Final[Mapping[type[Exception], type[s3.S3Error]]] = {
    file_errors.InvalidFile: s3.S3InvalidArgument,
    file_errors.FileMissing: s3.S3NoSuchKey,
    file_errors.BucketNotFound: s3.S3NoSuchBucket,
    file_errors.BucketNotEmpty: s3.S3BucketNotEmpty,
    file_errors.FileClassNotFound: s3.S3InvalidStorageClass,
    file_errors.QuotaExceeded: s3.S3EntityTooLarge,
    file_errors.FileConditionFailed: s3.S3PreconditionFailed,
    file_errors.UploadGone: s3.S3NoSuchUpload,
    BodyDiffers: s3.S3InternalError,
    NodeSignatureRefused: s3.S3AccessDenied,
    NoDiskHasRoom: s3.S3ServiceUnavailable,
    TooFewDurable: s3.S3ServiceUnavailable,
    NoSourceLeft: s3.S3ServiceUnavailable,
    SourceFailed: s3.S3ServiceUnavailable,
    DatabaseUnavailable: s3.S3ServiceUnavailable,
    DiskError: s3.S3ServiceUnavailable,
    PeerdError: s3.S3InternalError,
}
_WITHOUT_DETAILS: Final = (DiskError, DatabaseUnavailable, NoSourceLeft, SourceFailed, BodyDiffers)
"""Their texts name paths, hosts or copies, which are nothing for a client of S3."""


def as_s3_error(error: Exception) -> s3.S3Error | None:
    """The error that a client gets; None for a fault of the program.

    >>> str(as_s3_error(file_errors.BucketNotFound("films", ["private"])))
    'there is no bucket of this name'
    """
    if isinstance(error, s3.S3Error):
        return error
    if isinstance(error, file_errors.FileConditionFailed) and error.is_missing:
        return s3.S3NoSuchKey(str(error))
    kind = next((_S3_ERROR_OF[base] for base in type(error).__mro__ if base in _S3_ERROR_OF), None)
    if kind is None:
        return None
    hides = isinstance(error, (*_WITHOUT_DETAILS, file_errors.BucketNotFound, file_errors.FileClassNotFound))
    return kind() if hides or kind is s3.S3InternalError else kind(str(error))
