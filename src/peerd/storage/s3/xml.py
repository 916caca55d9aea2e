"""XML of strangers, read into small trees; and XML, written.

A document type is refused before anything in it is read, so there are no entities but the five of XML itself. Size,
depth and the number of elements are limited. Characters that no XML can hold are read all the same, because keys may
have them, and S3 takes them in a document, as they are or as references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from xml.parsers import expat

from peerd.storage.s3.errors import S3Code, S3Error

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


def xml_document(root: str, content: Iterable[str], namespace: str | None = NAMESPACE) -> bytes:
    r"""A document: its declaration, the element ``root``, and its content, which is XML already.

    >>> xml_document("VersioningConfiguration", [], None)
    b'<?xml version="1.0" encoding="UTF-8"?>\n<VersioningConfiguration></VersioningConfiguration>'
    """
    attribute = f' xmlns="{namespace}"' if namespace else ""
    text = "".join(content)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}{attribute}>{text}</{root}>'.encode()


def xml_text(name: str, value: object) -> str:
    r"""An element with text. None gives no element; a truth value is true or false.

    >>> xml_text("Key", "a&b\r"), xml_text("IsTruncated", False), xml_text("Marker", None)
    ('<Key>a&amp;b&#13;</Key>', '<IsTruncated>false</IsTruncated>', '')
    """
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"<{name}>{xml_escaped(text)}</{name}>"


def xml_escaped(text: str) -> str:
    """A text as the content of an element."""
    return _ESCAPED.sub(_escape, text)


def xml_element(name: str, *content: str) -> str:
    """An element with content that is XML already."""
    return f"<{name}>{''.join(content)}</{name}>"


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
