"""A site and its background tasks: it enqueues, shows progress, cancels, and every web process is told of the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from peerd import Client
from peerd.testing import eventually
from tests.examples.project import ExampleProject

WITHIN = 60.0


@pytest.fixture
def project(tmp_path: Path) -> ExampleProject:
    """Its web processes read the table at their start only, so that what they know later they were told."""
    changes = {'"127.0.0.1:8080"': '"127.0.0.1:0"', 'interval = "10s"': 'interval = "1h"'}
    return ExampleProject("web_and_tasks", tmp_path, changes)


def address(project: ExampleProject) -> str:
    [listening] = project.status()["sockets"]
    return f"http://{listening['addresses'][0]}"


def ask(site: str, method: str, path: str, **more: Any) -> httpx.Response:
    """One request on a connection of its own, so that either process may answer."""
    return httpx.request(method, site + path, timeout=60, **more)


def both_know(site: str, picture: dict[str, Any]) -> Callable[[], bool]:
    """Whether both web processes have the picture among their latest."""
    knowing: set[str] = set()

    def know() -> bool:
        answer = ask(site, "GET", "/pictures").json()
        if picture in answer["latest"]:
            knowing.add(answer["told"])
        return knowing == {"site-1", "site-2"}

    return know


@pytest.mark.slow
def test_a_site_enqueues_shows_progress_cancels_and_is_reported_by_the_worker_when_it_is_done(
    project: ExampleProject,
) -> None:
    with project.node():
        site = address(project)
        assert "was told of mine" in project.run(site)

        mine = {"id": 1, "title": "mine", "picture": "/pictures/1"}
        eventually(both_know(site, mine), timeout=WITHIN, message=project.output)
        assert ask(site, "GET", "/pictures/1").content.startswith(b"\x89PNG")
        assert "<form>" in ask(site, "GET", "/").text

        large = ask(site, "POST", "/pictures", json={"title": "large", "width": 2000, "depth": 5000})
        assert large.status_code == 202
        job = large.json()["job"]
        eventually(lambda: 0 < (ask(site, "GET", job).json()["progress"] or 0) < 1, timeout=WITHIN)
        assert ask(site, "DELETE", job).status_code == 202
        assert ask(site, "GET", job).json()["status"] == "canceled"
        assert ask(site, "DELETE", job).status_code == 409

        for body in ("no JSON", '{"title": ""}', '{"title": "x", "width": 1000000}', '{"colour": "red"}', "[" * 9_999):
            assert ask(site, "POST", "/pictures", content=body).status_code == 400, body
        for path in ("/jobs/7", "/jobs/99999999999999999999", "/pictures/..%2Fpeerd", "/else"):
            assert ask(site, "GET", path).status_code == 404, path
        assert "Traceback" not in project.output()

        with Client(f"sqlite:///{project.folder}/peerd.sqlite") as client:
            asked = client.schedules.run("latest").id
            eventually(lambda: not client.schedules.get_run(asked).is_open, timeout=WITHIN, message=project.output)
            assert {run.status for run in client.schedules.runs("latest") if not run.is_open} == {"done"}

        killed = project.kill("site-1")
        eventually(lambda: project.pid("site-1") != killed, timeout=WITHIN, message=project.output)
        eventually(both_know(site, mine), timeout=WITHIN, message=project.output)  # it reads what it was not told
