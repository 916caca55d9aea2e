"""Tests wait a minute for what they wait for: defaults of httpx and `eventually` are too short beside other work."""

from __future__ import annotations

import httpx
import pytest

from peerd.testing import waiting

SECONDS = 60.0


@pytest.hookimpl
def pytest_configure() -> None:
    requests = (httpx.get, httpx.post, httpx.put, httpx.delete, httpx.request)
    for function in (httpx.Client.__init__, httpx.AsyncClient.__init__, *requests):
        defaults = function.__kwdefaults__
        assert defaults is not None
        assert "timeout" in defaults
        defaults["timeout"] = httpx.Timeout(SECONDS)
    for wait in (waiting.eventually, waiting.eventually_async):
        assert wait.__defaults__ is not None
        wait.__defaults__ = (SECONDS, *wait.__defaults__[1:])
