"""Pages of files and disks: what they show, what they do, and where they are not shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.config.settings import AccessSettings
from peerd.store.files.checks import postpone_check
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import disks, file_buckets, file_checks
from tests.pages.addresses import FILE, NODE
from tests.pages.test_pages import parse
from tests.storage.nodes import SECRET, ServedNode, StorageCluster
from tests.store.file_steps import Catalogue
from tests.web.access_world import serving

HOSTILE_KEY = "2026/<script>hit()<b>\u202e\x1b[31m \r\n{{7777*7}}'\".mov"


def run(client: Client, statement: sa.Executable) -> None:
    client.database.run(lambda connection: connection.execute(statement).close())


def post(visitor: httpx.Client, address: str) -> httpx.Response:
    """Send the form of an action."""
    return visitor.post(address, data={"back": ""})


def test_files_are_listed_by_folders_and_keys_page_by_page(visitor: httpx.Client, client: Client) -> None:
    top = visitor.get("/files/list?bucket=films").text
    assert 'href="/files/list?bucket=films&amp;prefix=2026%2F">2026/</a>' in top
    assert "readme.txt" in top
    assert "one.mov" not in top
    below = visitor.get("/files/list?bucket=films&prefix=2026/").text
    assert "one.mov" in below
    assert "raw/" in below
    assert "1 of 2" in below
    assert re.search(r'<span class="chip warn">at-risk</span>', below)
    catalogue = Catalogue(client.database, {NODE: 1})
    bucket = catalogue.bucket("many")
    for number in range(150):
        catalogue.put(bucket, f"clip-{number:03}", 1)
    first = visitor.get("/files/list?bucket=many&view=keys")
    [following] = [link for link in parse(first).links if "after=" in link]
    rest = visitor.get(following.replace("&amp;", "&")).text
    clips = [re.findall(r">clip-(\d+)<", text) for text in (first.text, rest)]
    assert [(found[0], found[-1]) for found in clips] == [("000", "099"), ("100", "149")]
    assert "after=" not in rest.partition("</main>")[0].partition('id="files"')[2]


def test_a_file_shows_its_copies_and_what_it_lacks(visitor: httpx.Client) -> None:
    shown = visitor.get(f"/files/show?name={FILE}").text
    for text in ("It has 1 of 2 copies.", "1.5 MB", "Disk is", "online", "/srv/node"):
        assert text in shown, text
    assert visitor.get("/files/show?name=films/nothing").status_code == 404
    assert visitor.get("/files/show?name=nothing").status_code == 422


def test_a_hostile_key_is_text_and_has_a_page_an_action_and_an_address(visitor: httpx.Client, client: Client) -> None:
    catalogue = Catalogue(client.database, {NODE: 1})
    [bucket] = [one for one in client.buckets.list() if one.name == "films"]
    catalogue.put(bucket, HOSTILE_KEY, 1)  # type: ignore[arg-type]
    address = f"/files/show?name={quote(f'films/{HOSTILE_KEY}', safe='')}"
    page = visitor.get(address)
    listed = visitor.get("/files/list?bucket=films&prefix=2026/")
    confirm = visitor.get(address.replace("/show", "/delete"))
    for answer in (page, listed, confirm):
        assert answer.status_code == 200
        parse(answer)
        for text in ("<script>hit", "\u202e", "\x1b", "54439"):
            assert text not in re.sub(r'(value|href|action)="[^"]*"', "", answer.text), text
    [link] = [link for link in parse(listed).links if "script" in link]
    assert visitor.get(link).status_code == 200
    done = post(visitor, address.replace("/show", "/delete"))
    assert (done.status_code, done.headers["location"]) == (303, "/files/list?bucket=films&prefix=2026%2F")
    assert visitor.get(address).status_code == 404


def test_a_file_is_verified_and_deleted_by_forms(visitor: httpx.Client, client: Client) -> None:
    done = post(visitor, f"/files/verify?name={FILE}")
    assert (done.status_code, done.headers["location"]) == (303, f"/files/show?name={quote(FILE, safe='')}")
    assert "1 copy is verified by tasks" in visitor.get("/files").text
    [task] = client.tasks.list(queue="storage", name="verify")
    assert '"disk":1' in (task.body or "")
    post(visitor, f"/files/verify?name={FILE}")
    assert "Tasks verify it already." in visitor.get("/files").text
    assert len(client.tasks.list(queue="storage", name="verify")) == 1
    assert "its copies are removed" in visitor.get(f"/files/delete?name={FILE}").text
    post(visitor, f"/files/delete?name={FILE}")
    assert client.files.list("films", "2026/one").files == []


def test_a_disk_is_drained_and_used_again_and_only_a_silent_one_can_be_declared_lost(
    visitor: httpx.Client, client: Client
) -> None:
    shown = visitor.get("/disks/1").text
    assert "/disks/1/drain" in shown
    assert "/disks/1/lost" not in shown
    assert post(visitor, "/disks/1/lost").status_code == 409
    assert post(visitor, "/disks/1/drain").status_code == 303
    drained = visitor.get("/disks/1").text
    assert "3 copies are still on it" in drained
    assert 'href="/disks/1/activate">Undo</a>' in drained
    assert post(visitor, "/disks/1/activate").status_code == 303
    assert client.disks.list()[0].state == "active"
    run(client, sa.update(disks).values(seen_at=seconds_from_now(-60)))
    assert "/disks/1/lost" in visitor.get("/disks/1").text
    assert "its copies count until it is silent for 15 min" in visitor.get("/disks/1").text
    run(client, sa.update(disks).values(seen_at=seconds_from_now(-1_000)))
    post(visitor, "/disks/1/readonly")
    assert "missing" in visitor.get("/disks").text
    assert post(visitor, "/disks/1/lost").status_code == 303
    lost = visitor.get("/disks/1").text
    assert "It was declared lost" in lost
    assert "<dt>Room</dt>" in drained
    assert "<dt>Room</dt>" not in lost, "nothing more can be stored on it"
    assert post(visitor, "/disks/1/remove").status_code == 409
    assert visitor.get("/disks/2").status_code == 404


def test_the_brake_is_shown_with_the_action_that_releases_it(visitor: httpx.Client, client: Client) -> None:
    catalogue = Catalogue(client.database)
    silent = [catalogue.disk(name, silent_for=1_000.0) for name in ("a", "b")]
    shown = visitor.get("/storage").text
    assert "The repair brake is on: 2 nodes are silent at once (a, b)" in shown
    assert all(f'href="/disks/{number}/lost"' in shown for number in silent)
    assert post(visitor, f"/disks/{silent[0]}/lost").status_code == 303
    assert "The repair brake is on" not in visitor.get("/storage").text


def test_files_at_risk_are_shown_with_the_reason_page_by_page(visitor: httpx.Client, client: Client) -> None:
    shown = visitor.get("/storage").text
    assert "no other node has a disk" in shown
    assert "films/readme.txt" in shown
    assert "None: every file has its copies" in visitor.get("/storage?health=lost").text
    assert visitor.get("/storage?after=nonsense").status_code == 422
    catalogue = Catalogue(client.database, {NODE: 1})
    bucket = catalogue.bucket("many")
    for number in range(60):
        file = catalogue.put(bucket, f"clip-{number:02}", 1)
        client.database.run(postpone_check, file.id, 60.0, danger=2, health="at-risk", blocked=None)
    first = visitor.get("/storage?health=at-risk")
    [following] = [link for link in parse(first).links if "after=" in link]
    assert "clip-48" in first.text
    assert "clip-49" in visitor.get(following).text
    run(client, sa.update(file_checks).values(health="whole"))
    post(visitor, "/theme")  # what was read is forgotten
    assert "All files have their copies." in visitor.get("/storage?health=whole").text


def test_the_navigation_leads_to_storage_only_where_it_is_used(client: Client) -> None:
    for used in (False, True):
        tables = () if used else (disks, file_buckets)
        for table in tables:
            run(client, sa.delete(table))
        if used:
            client.buckets.create("films")
        with serving(client, AccessSettings()) as address, httpx.Client(base_url=address) as http:
            links = parse(http.get("/queues")).links
            assert {"/storage", "/files", "/disks"} <= set(links) if used else "/storage" not in links
            assert "Put one" in http.get("/files/list?bucket=films").text if used else True


@pytest.fixture
def filled(client: Client, tmp_path: Path) -> Iterator[tuple[StorageCluster, bytes]]:
    """Two nodes with a disk each, and a file of which both have a copy."""
    catalogue = Catalogue(client.database)
    run(client, sa.delete(disks))
    content = os.urandom(3_000_000)
    with ExitStack() as served:
        nodes = [ServedNode(name, tmp_path, catalogue) for name in "ab"]
        for node in nodes:
            served.enter_context(node.served())
        cluster = StorageCluster(catalogue, nodes)
        cluster.refresh()
        with Client(client.database.url.render_as_string(hide_password=False), secret=SECRET) as writer:
            (tmp_path / "source").write_bytes(content)
            writer.files.put(tmp_path / "source", "films/ünter/<b>.mov")
        cluster.run_tasks()
        yield cluster, content


def test_a_download_is_the_content_as_an_attachment_also_when_one_copy_is_damaged(
    client: Client, filled: tuple[StorageCluster, bytes]
) -> None:
    cluster, content = filled
    with (
        Client(client.database.url.render_as_string(hide_password=False), secret=SECRET) as reader,
        serving(reader, AccessSettings()) as address,
        httpx.Client(base_url=address) as http,
    ):
        got = http.get("/files/download?name=films/%C3%BCnter/%3Cb%3E.mov")
        assert got.status_code == 200, got.text[:500]
        assert got.content == content
        assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''%3Cb%3E.mov"
        assert got.headers["content-type"] == "application/octet-stream"
        assert "sandbox" in got.headers["content-security-policy"]
        file = client.files.stat("films/ünter/<b>.mov").file
        with cluster.nodes["a"].content_path(file.id).open("r+b") as damaged:
            damaged.seek(1_000_000)
            damaged.write(b"damage")
        assert http.get("/files/download?name=films/%C3%BCnter/%3Cb%3E.mov").content == content
        assert http.get("/files/download?name=films/nothing").status_code == 404
        cluster.nodes["b"].content_path(file.id).unlink()
        cluster.nodes["a"].content_path(file.id).unlink(missing_ok=True)
        gone = http.get("/files/download?name=films/%C3%BCnter/%3Cb%3E.mov")
        assert gone.status_code == 503
        assert "text/html" in gone.headers["content-type"]
