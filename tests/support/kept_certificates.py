"""The certificates that this machine trusts are read once, and not for each client of HTTP that a test makes.

To read them takes 25 ms of a processor, which is more than most requests take.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from pathlib import Path
from typing import Any

import pytest

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def pytest_configure(config: pytest.Config) -> None:
    read = ssl.create_default_context

    @cache
    def keep(_: object, **options: Any) -> ssl.SSLContext:
        return read(**options)

    def create_default_context(*arguments: Any, **options: Any) -> ssl.SSLContext:
        if arguments or options.keys() - {"cafile"}:
            return read(*arguments, **options)
        paths = [options.get("cafile"), *(os.environ.get(name) for name in VARIABLES)]
        return keep(tuple((path, _changed_at(path)) for path in paths), **options)

    ssl.create_default_context = create_default_context
    config.add_cleanup(lambda: setattr(ssl, "create_default_context", read))


def _changed_at(path: str | None) -> int | None:
    return Path(path).stat().st_mtime_ns if path and Path(path).exists() else None
