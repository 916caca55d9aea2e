"""The certificates that this machine trusts are read once, and not for each client of HTTP that a test makes.

To read them takes 25 ms of a processor, which is more than most requests take.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

import certifi
import pytest


def pytest_configure(config: pytest.Config) -> None:
    read = ssl.create_default_context
    keep = cache(read)

    def create_default_context(*arguments: Any, **options: Any) -> ssl.SSLContext:
        is_usual = options in ({}, {"cafile": certifi.where()}) and not arguments
        chooses_others = "SSL_CERT_FILE" in os.environ or "SSL_CERT_DIR" in os.environ
        return keep(**options) if is_usual and not chooses_others else read(*arguments, **options)

    ssl.create_default_context = create_default_context
    config.add_cleanup(lambda: setattr(ssl, "create_default_context", read))
