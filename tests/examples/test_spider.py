"""Spiders in two languages crawl a site together: each page once, although one of them and the gateway are killed."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from peerd import Client, Status
from peerd.testing import eventually
from tests.examples.project import ExampleProject
from tests.support.server import free_port

PAGES = 62


@pytest.fixture
def project(tmp_path: Path) -> ExampleProject:
    gateway, site = free_port(), free_port()
    changes = {"127.0.0.1:11300": f"127.0.0.1:{gateway}"}
    changes |= {
        f'"python", "{program}"': f'"{sys.executable}", "{program}"' for program in ("little_site.py", "spider.py")
    }
    return ExampleProject("spider", tmp_path, changes, GATEWAY_PORT=str(gateway), SITE=f"http://127.0.0.1:{site}")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_spiders_in_two_languages_read_each_page_once_although_one_and_the_gateway_are_killed(
    project: ExampleProject,
) -> None:
    with project.node(), Client(f"sqlite:///{project.folder}/peerd.sqlite") as client:

        def read() -> int:
            return len(list(client.tasks.list(queue="pages", status="done", limit=1000)))

        for slot, pages in (("python-spider-1", 5), ("jobs-1", 15)):
            done = partial(client.tasks.list, queue="pages", status="done", limit=1000)
            eventually(lambda: len(list(done())) >= pages, message=project.output)  # noqa: B023 - at once
            project.kill(slot)

        said = project.run()
        assert f"{PAGES} pages, each once:" in said
        assert "/busy: 503 Service Unavailable, then done" in said
        assert "/nowhere: 404 Not Found, then dead" in said
        for language in ("node", "python"):
            assert f"  {language} " in said, said
        assert {task.status for task in client.tasks.list(queue="pages", limit=1000)} == {Status.DONE, Status.DEAD}
        assert "Traceback" not in project.output()
