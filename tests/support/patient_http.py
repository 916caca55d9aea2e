"""Requests of tests wait a minute for an answer: five seconds, httpx's default, are too few beside other work."""

from __future__ import annotations

import httpx
import pytest

TIMEOUT = httpx.Timeout(60.0)


@pytest.hookimpl
def pytest_configure() -> None:
    requests = (httpx.get, httpx.post, httpx.put, httpx.delete, httpx.request)
    for function in (httpx.Client.__init__, httpx.AsyncClient.__init__, *requests):
        defaults = function.__kwdefaults__
        assert defaults is not None
        assert "timeout" in defaults
        defaults["timeout"] = TIMEOUT
