"""The id of a content: what it is called on disks and between nodes."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final

from peerd.domain.quoting import quoted

EPOCH: Final = 1_577_836_800
"""2020-01-01 UTC, in seconds of Unix time."""

_RANDOM_BITS: Final = 22
_LAST: Final = 2**63 - 1
_TEXT: Final = re.compile(r"[0-7][0-9a-f]{15}")
_FOLDER_DIGITS: Final = (4, 3)
"""How many digits of an id name the folder of each level below contents/. Disks that exist depend on it."""

_FOLDER_BITS: Final = 64 - 4 * sum(_FOLDER_DIGITS)
"""Bits of an id that do not name a folder."""

FOLDER_NAMES: Final = tuple(re.compile(rf"[0-9a-f]{{{digits}}}") for digits in _FOLDER_DIGITS)


@dataclass(frozen=True, slots=True, order=True)
class ContentId:
    """A number of 63 bits: milliseconds since 2020 (41 bits), then random ones (22). Later contents have greater ids.

    >>> content = ContentId(0x0191B2C3D4E5F607)
    >>> str(content), content.folders
    ('0191b2c3d4e5f607', ('0191', 'b2c'))
    """

    number: int

    def __post_init__(self) -> None:
        if not 0 <= self.number <= _LAST:
            raise ValueError(f"{self.number} is no content id: it has 63 bits")

    def __str__(self) -> str:
        return f"{self.number:016x}"

    @property
    def made_at(self) -> float:
        """When it was made, in seconds of Unix time.

        >>> new_content_id(1_700_000_000.5).made_at
        1700000000.5
        """
        return EPOCH + (self.number >> _RANDOM_BITS) / 1000

    @property
    def folder_number(self) -> int:
        """Two contents share their folders if they have the same."""
        return self.number >> _FOLDER_BITS

    @property
    def folders(self) -> tuple[str, str]:
        """The names of its two folders below contents/, the outer one first."""
        first, second = _FOLDER_DIGITS
        text = str(self)
        return text[:first], text[first : first + second]


def new_content_id(now: float) -> ContentId:
    """An id that no other content has.

    Args:
        now: the time, in seconds of Unix time.

    Raises:
        ValueError: the time is before 2020 or after 2089: the clock is wrong.
    """
    milliseconds = int((now - EPOCH) * 1000)
    if not 0 <= milliseconds < 2**41:
        raise ValueError(f"the time {now:.0f} is not between 2020 and 2089; set the clock of this machine")
    return ContentId(milliseconds << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS))


def parse_content_id(text: str) -> ContentId:
    """The id with this text: 16 lower-case hexadecimal digits, and nothing else.

    Raises:
        ValueError: it is the text of no id.
    """
    if not _TEXT.fullmatch(text):
        raise ValueError(f"{quoted(text)} is no content id: 16 hexadecimal digits, the first below 8")
    return ContentId(int(text, 16))


def is_content_id(text: str) -> bool:
    """Whether this is the text of an id."""
    return _TEXT.fullmatch(text) is not None
