"""XML: documents of strangers, read into small trees, the three documents that clients send, and documents, written.

A document type is refused before anything in it is read, so there are no entities but the five of XML itself. Size,
depth and the number of elements are limited. Characters that no XML can hold are read all the same, because keys may
have them, and S3 takes them in a document, as they are or as references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final
from xml.parsers import expat

import msgspec

from peerd.storage.s3.checksums import CHECKSUM_SIZES, Checksum
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import checked_key
from peerd.storage.s3.requests import MAX_PART_NUMBER

XmlContent = str | int | datetime | Sequence["XmlChild"] | None
XmlChild = tuple[str, XmlContent]
DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>'
MAX_DEPTH: Final = 10
MAX_ELEMENTS: Final = 60_000
"""A document of 10,000 parts has 40,001: for each part its number, its ETag, and a checksum."""
NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"

_ESCAPED: Final = re.compile('[&<>"\r\t\n\x00-\x1f\x7f-\x9f\ufffe\uffff]')
_NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_REFERENCE: Final = re.compile(r"&#(?:x0*([0-9A-Fa-f]{1,4})|0*([0-9]{1,5}));")
_MASK: Final = "\ue000"
"""Before the code of a character, in four hex digits, for which it stands while a document is parsed."""
_MASKED: Final = re.compile(f"{_MASK}([0-9a-f]{{4}})")
_TO_MASK: Final = re.compile(f"[{_MASK}\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}

MAX_DELETED: Final = 1000
"""How many objects one request may delete."""
MAX_PARTS_DOCUMENT: Final = 4 * 1024 * 1024
MAX_DELETE_DOCUMENT: Final = 8 * 1024 * 1024
"""A thousand keys of 1,024 bytes have 5 MiB, if each byte is an ``&amp;``."""
MAX_BUCKET_DOCUMENT: Final = 64 * 1024
"""The largest documents, in bytes; a server need not read a body that is longer."""

_CHECKSUM_ELEMENTS: Final = {f"Checksum{name.upper()}": name for name in CHECKSUM_SIZES}


class XmlElement:
    """An element that was read: its name without a prefix, its own text, and its children."""

    __slots__ = ("children", "name", "text")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = ""
        self.children: list[XmlElement] = []

    def all(self, name: str) -> Iterator[XmlElement]:
        """The children of this name."""
        return (child for child in self.children if child.name == name)

    def text_of(self, name: str) -> str | None:
        """The text of the only child of this name, None if there is none. Raises S3Error: MalformedXML."""
        found = list(self.all(name))
        if len(found) > 1:
            raise S3Error(S3Code.MalformedXML, f"<{self.name}> has more than one <{name}>")
        return found[0].text if found else None


def read_xml(document: bytes, root: str, limit: int) -> XmlElement:
    """The tree of a document in UTF-8 whose outermost element is ``root``.

    Raises S3Error: MalformedXML, or MaxMessageLengthExceeded for more than ``limit`` bytes.

    >>> read_xml(b"<Delete><Quiet>true</Quiet></Delete>", "Delete", 1000).text_of("Quiet")
    'true'
    """
    if len(document) > limit:
        raise S3Error(S3Code.MaxMessageLengthExceeded)
    builder = _TreeBuilder()
    try:
        builder.parser.Parse(_masked(document), True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise S3Error(S3Code.MalformedXML) from error
    if builder.tree is None or builder.tree.name != root:
        raise S3Error(S3Code.MalformedXML, f"the document is not a <{root}>")
    return builder.tree


def _masked(document: bytes) -> bytes:
    """A document in which each character that no XML can hold is masked."""

    def resolve(found: re.Match[str]) -> str:
        character = chr(int(found[1], 16) if found[1] else int(found[2]))
        return character if _TO_MASK.fullmatch(character) else found[0]

    text = document.decode()
    if "<![CDATA[" not in text:  # in which a reference is text
        text = _REFERENCE.sub(resolve, text)
    return _TO_MASK.sub(lambda found: f"{_MASK}{ord(found[0]):04x}", text).encode()


class _TreeBuilder:
    def __init__(self) -> None:
        self.tree: XmlElement | None = None
        self._open: list[tuple[XmlElement, list[str]]] = []
        self._count = 0
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.EntityDeclHandler = self._refuse
        self.parser.ProcessingInstructionHandler = self._refuse
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text

    def _refuse(self, *_: object) -> None:
        raise S3Error(S3Code.MalformedXML, "document types, entities and processing instructions are not taken")

    def _start(self, name: str, _: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) == MAX_DEPTH or self._count > MAX_ELEMENTS:
            raise S3Error(S3Code.MalformedXML, "the document is too deep, or has too many elements")
        element = XmlElement(name.rpartition(":")[2])
        if self._open:
            self._open[-1][0].children.append(element)
        else:
            self.tree = element
        self._open.append((element, []))

    def _text(self, text: str) -> None:
        self._open[-1][1].append(text)

    def _end(self, _: str) -> None:
        element, texts = self._open.pop()
        element.text = _MASKED.sub(lambda found: chr(int(found[1], 16)), "".join(texts))


# ---------------------------------------------------------------- what clients send


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
    if not 1 <= len(parts) <= MAX_PART_NUMBER:
        raise S3Error(S3Code.MalformedXML, f"an upload has 1 to {MAX_PART_NUMBER} parts, not {len(parts)}")
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
    if not (number.isascii() and number.isdigit() and len(number) <= 5 and 1 <= int(number) <= MAX_PART_NUMBER):
        raise S3Error(S3Code.MalformedXML, f"<PartNumber> is not 1 to {MAX_PART_NUMBER}")
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


# ---------------------------------------------------------------- written


def xml_document(root: str, content: Iterable[XmlChild], namespace: str | None = NAMESPACE) -> bytes:
    r"""A document: its declaration, and the element ``root`` with its children.

    A child is a name and its content: a text, a number, a time, children of its own, or None if it is left out.

    >>> xml_document("Part", [("Key", "a&b\r"), ("Marker", None), ("Owner", [("ID", 5)])], None)
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Part><Key>a&amp;b&#13;</Key><Owner><ID>5</ID></Owner></Part>'
    """
    attribute = f' xmlns="{namespace}"' if namespace else ""
    return f"{DECLARATION}\n<{root}{attribute}>{''.join(map(_written, content))}</{root}>".encode()


def _written(child: XmlChild) -> str:
    name, content = child
    if content is None:
        return ""
    if isinstance(content, str):
        text = _ESCAPED.sub(_escape, content)
    elif isinstance(content, int):  # a truth value too
        text = str(content).lower()
    elif isinstance(content, datetime):
        text = iso_time(content)
    else:
        text = "".join(map(_written, content))
    return f"<{name}>{text}</{name}>"


def iso_time(time: datetime) -> str:
    """A time as XML has it.

    >>> iso_time(datetime(2026, 11, 26, 9, 0, 0, 123456, UTC))
    '2026-11-26T09:00:00.123Z'
    """
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def readable(text: str) -> str:
    r"""A text without the characters that no XML can hold: for what a client shows, and does not use.

    >>> readable("a\x01b")
    'a\ufffdb'
    """
    return _NOT_XML.sub("\ufffd", text)


def _escape(found: re.Match[str]) -> str:
    """A character that XML would change on the way, as its number. Of a control character there is no other form: XML
    1.0 has none at all, and clients that may meet one ask for encoding-type=url, as S3's reference advises.
    """
    return _ENTITIES.get(found[0]) or f"&#{ord(found[0])};"
