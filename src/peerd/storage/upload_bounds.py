"""What requests about resumable uploads may say."""

from __future__ import annotations

from typing import Final

DIGEST: Final = 32
"""Bytes of the BLAKE3 behind those of a part: so its client reads its source once."""
MAX_PART: Final = 1024**3
MAX_SIZE: Final = 2**50
UPLOAD_ID: Final = "[0-9a-f]{32}"
SOURCE: Final = "[0-9a-z-]{1,100}"
BLAKE3: Final = "[0-9a-f]{64}"
"""In hex."""
