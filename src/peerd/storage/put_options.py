"""What is stored with a content, and what it must be."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class PutOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored with a content.

    Attributes:
        class_name: None: that of the bucket.
        content_type: such as ``video/mp4``.
        metadata: names and values.
        expires_in: seconds after which the file is removed by itself; None: never.
        only_new: refuse to replace a file.
        size: bytes that the content must have; None: any.
        blake3: that it must have, in hex; None: any.
    """

    class_name: str | None = None
    content_type: str | None = None
    metadata: Mapping[str, str] = {}
    expires_in: float | None = None
    only_new: bool = False
    size: int | None = None
    blake3: str | None = None
