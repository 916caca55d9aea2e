"""The app with the metrics of a node and nothing else, called as a server calls it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from peerd.domain.errors import NoReply, RequestFailed
from peerd.web import metrics_app


async def answer(method: str, path: str, process: object = None) -> httpx.Response:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await metrics_app({**scope, "state": {"peerd": process}}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://node") as http:
        return await http.request(method, path)


async def test_where_no_agent_answers_there_is_a_503_with_the_reason() -> None:
    def process(error: Exception) -> object:
        async def request(*_: object, **__: object) -> Any:
            raise error

        return SimpleNamespace(messenger=SimpleNamespace(request=request))

    silent = NoReply("peerd.metrics", "the agent", "its 3 s are over")
    failed = RequestFailed("peerd.metrics", "the agent", "<b>off</b>")
    for asked, reason in ((process(silent), str(silent)), (process(failed), str(failed)), (None, "no process of")):
        response = await answer("GET", "/metrics", asked)
        assert (response.status_code, reason in response.text) == (503, True), reason
        assert response.headers["content-type"].startswith("text/plain")


async def test_it_answers_nothing_else() -> None:
    assert (await answer("GET", "/health/live")).text == "ok\n"
    assert (await answer("GET", "/api/v1/tasks")).status_code == 404
    assert (await answer("POST", "/metrics")).status_code == 405
    head = await answer("HEAD", "/")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.slow
def test_it_loads_nothing_of_the_api_which_is_loaded_when_it_is_asked_for() -> None:
    code = (
        "import sys; from peerd.web import metrics_app; assert callable(metrics_app); "
        "assert 'fastapi' not in sys.modules; "
        "import peerd.web as web; app = web.app; assert app is web.app and callable(web.create_app); "
        "assert callable(web.metrics_app); assert not hasattr(web, 'other')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
