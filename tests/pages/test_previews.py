"""Files that results name are shown below the folders of the site, and nowhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.config.settings import AccessSettings
from peerd.store.schema.tables import tasks
from tests.support.served_api import everyone
from tests.web.access_world import serving

PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010806000000") + b"rest"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the site may show."""
    folder = tmp_path / "output"
    (folder / "posters").mkdir(parents=True)
    (folder / "posters" / "a.png").write_bytes(PNG)
    (folder / "film.mp4").write_bytes(bytes(range(256)) * 40)
    (folder / "notes.txt").write_text("private")
    (folder / "page.svg").write_text("<svg onload='alert(1)'/>")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "text.png").symlink_to(folder / "notes.txt")
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    return folder


@pytest.fixture
def http(client: Client, folder: Path) -> Iterator[httpx.Client]:
    with (
        serving(client, AccessSettings(preview_folders=(folder,)), authenticate=everyone) as address,
        httpx.Client(base_url=address, headers={"origin": address}) as http,
    ):
        yield http


def give_result(client: Client, result: object) -> None:
    values = {"result": json.dumps(result), "status": "dead"}
    client.database.run(sa.Connection.execute, sa.update(tasks).where(tasks.c.id == 1).values(values))


def test_images_and_videos_are_shown(http: httpx.Client, client: Client, folder: Path) -> None:
    give_result(client, {"poster": str(folder / "posters" / "a.png"), "files": ["film.mp4", "film.mp4", "gone.mp4"]})
    page = http.get("/tasks/1").text
    assert '<img loading="lazy" alt="" src="/tasks/1/preview/0">' in page
    assert '<video controls preload="metadata" src="/tasks/1/preview/1">' in page
    assert "/preview/2" not in page
    image = http.get("/tasks/1/preview/0")
    assert (image.content, image.headers["content-type"]) == (PNG, "image/png")
    assert image.headers["content-security-policy"] == "default-src 'none'; sandbox"
    part = http.get("/tasks/1/preview/1", headers={"range": "bytes=256-259"})
    assert (part.status_code, part.content) == (206, bytes(range(4)))


def test_nothing_else_is(http: httpx.Client, client: Client) -> None:
    outside = "../secret.png", "link.png", "/etc/passwd", "posters/../../secret.png"
    for named in (*outside, "text.png", "page.svg", "folder.png", "pipe.png", "", "a\x00.png", "x" * 5000 + ".png"):
        give_result(client, {"file": named})
        http.post("/theme")  # what was read is forgotten
        page = http.get("/tasks/1")
        assert (page.status_code, "/preview/" in page.text) == (200, False), named
        assert http.get("/tasks/1/preview/0").status_code == 404, named


def test_without_folders_there_are_no_previews(visitor: httpx.Client, client: Client, folder: Path) -> None:
    give_result(client, {"file": str(folder / "film.mp4")})
    assert "/preview/" not in visitor.get("/tasks/1").text
    assert visitor.get("/tasks/1/preview/0").status_code == 404
