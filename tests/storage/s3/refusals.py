"""What is refused with a code of S3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from peerd.storage.s3.errors import S3Code, S3Error


@contextmanager
def refused_as(code: S3Code, match: str | None = None) -> Iterator[pytest.ExceptionInfo[S3Error]]:
    """The block raises an error with this code, whose text matches."""
    with pytest.raises(S3Error, match=match) as caught:
        yield caught
    assert caught.value.code is code
