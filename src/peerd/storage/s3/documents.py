"""The XML documents that clients send, as values."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import msgspec

from peerd.storage.s3.checksums import CHECKSUM_SIZES
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.names import checked_key
from peerd.storage.s3.operations import Checksum
from peerd.storage.s3.xml import XmlElement, read_xml

MAX_PARTS: Final = 10_000
MAX_DELETED: Final = 1000
"""How many objects one request may delete."""
MAX_PARTS_DOCUMENT: Final = 4 * 1024 * 1024
MAX_DELETE_DOCUMENT: Final = 8 * 1024 * 1024
"""A thousand keys of 1,024 bytes have 5 MiB, if each byte is an ``&amp;``."""
MAX_BUCKET_DOCUMENT: Final = 64 * 1024
"""The largest documents, in bytes; a server need not read a body that is longer."""

_CHECKSUM_ELEMENTS: Final = {f"Checksum{name.upper()}": name for name in CHECKSUM_SIZES}


class CompletedPart(msgspec.Struct, frozen=True):
    """A part of an upload as the client knows it; the ETag is without quotes."""

    number: int
    etag: str
    checksum: Checksum | None = None


class ObjectToDelete(msgspec.Struct, frozen=True):
    """A key to delete. ``etag``: only if the object has it; ``error``: why the key cannot be one."""

    key: str
    etag: str | None = None
    error: S3Error | None = None


class ObjectsToDelete(msgspec.Struct, frozen=True):
    """The objects of one request; ``is_quiet``: the answer names errors only."""

    objects: tuple[ObjectToDelete, ...]
    is_quiet: bool


def completed_parts(document: bytes) -> tuple[CompletedPart, ...]:
    """The parts of a CompleteMultipartUpload, in their order. Raises S3Error: MalformedXML and InvalidPartOrder.

    >>> completed_parts(
    ...     b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>a</ETag></Part></CompleteMultipartUpload>"
    ... )
    (CompletedPart(number=1, etag='a', checksum=None),)
    """
    parts = tuple(map(_part, _children(read_xml(document, "CompleteMultipartUpload", MAX_PARTS_DOCUMENT), {"Part"})))
    if not 1 <= len(parts) <= MAX_PARTS:
        raise S3Error(S3Code.MalformedXML, f"an upload has 1 to {MAX_PARTS} parts, not {len(parts)}")
    if any(later.number <= part.number for part, later in pairwise(parts)):
        raise S3Error(S3Code.InvalidPartOrder)
    return parts


def objects_to_delete(document: bytes) -> ObjectsToDelete:
    """The objects of a Delete. Raises S3Error: MalformedXML, and NotImplemented for conditions on sizes or times.

    >>> objects_to_delete(b"<Delete><Object><Key>a</Key></Object></Delete>").objects[0].key
    'a'
    """
    tree = read_xml(document, "Delete", MAX_DELETE_DOCUMENT)
    _children(tree, {"Object", "Quiet"})
    objects = tuple(map(_object, tree.all("Object")))
    if not 1 <= len(objects) <= MAX_DELETED:
        raise S3Error(S3Code.MalformedXML, f"a request deletes 1 to {MAX_DELETED} objects, not {len(objects)}")
    return ObjectsToDelete(objects, (tree.text_of("Quiet") or "").strip() == "true")


def location_constraint(document: bytes) -> str | None:
    """The region that a CreateBucketConfiguration names; None if the body is empty, or names none.

    Raises S3Error: MalformedXML, and NotImplemented for other settings.

    >>> location_constraint(b"") is None
    True
    """
    if not document.strip():
        return None
    tree = read_xml(document, "CreateBucketConfiguration", MAX_BUCKET_DOCUMENT)
    if other := next((child.name for child in tree.children if child.name != "LocationConstraint"), None):
        raise S3Error(S3Code.NotImplemented, f"<{other[:100]}> of a new bucket is not available on this server")
    return (tree.text_of("LocationConstraint") or "").strip() or None


def _part(element: XmlElement) -> CompletedPart:
    _children(element, {"PartNumber", "ETag", *_CHECKSUM_ELEMENTS})
    number = (element.text_of("PartNumber") or "").strip()
    if not (number.isascii() and number.isdigit() and len(number) <= 5 and 1 <= int(number) <= MAX_PARTS):
        raise S3Error(S3Code.MalformedXML, f"<PartNumber> is not 1 to {MAX_PARTS}")
    etag = (element.text_of("ETag") or "").strip().strip('"')
    if not etag:
        raise S3Error(S3Code.MalformedXML, "a <Part> has no <ETag>")
    sums = [Checksum(_CHECKSUM_ELEMENTS[child.name], child.text.strip()) for child in element.children
            if child.name in _CHECKSUM_ELEMENTS]  # fmt: skip
    if len(sums) > 1:
        raise S3Error(S3Code.MalformedXML, "a <Part> has more than one checksum")
    return CompletedPart(int(number), etag, sums[0] if sums else None)


def _object(element: XmlElement) -> ObjectToDelete:
    _children(element, {"Key", "VersionId", "ETag", "LastModifiedTime", "Size"})
    key, version, etag = (element.text_of(name) for name in ("Key", "VersionId", "ETag"))
    if not key:
        raise S3Error(S3Code.MalformedXML, "an <Object> has no <Key>")
    if version not in (None, "", "null"):
        raise S3Error(
            S3Code.NotImplemented, "objects have no versions on this server: <VersionId> must be left out, or 'null'"
        )
    if any(element.all("LastModifiedTime")) or any(element.all("Size")):
        raise S3Error(
            S3Code.NotImplemented, "conditions on <LastModifiedTime> and <Size> are not available on this server"
        )
    try:
        checked_key(key.encode())
    except S3Error as error:
        return ObjectToDelete(key, error=error)
    return ObjectToDelete(key, (etag or "").strip().strip('"') or None)


def _children(element: XmlElement, known: set[str]) -> list[XmlElement]:
    if unknown := next((child.name for child in element.children if child.name not in known), None):
        raise S3Error(S3Code.MalformedXML, f"<{element.name}> has an unknown element <{unknown[:100]}>")
    return element.children
