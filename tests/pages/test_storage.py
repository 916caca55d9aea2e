"""Pages of files and disks: what they show, what they do, and where they are not shown."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import sqlalchemy as sa

from peerd import Client
from peerd.store.files.checks import postpone_check
from peerd.store.schema.tables import disks, file_buckets, file_checks
from peerd.store.schema.types import seconds_from_now
from tests.pages.addresses import FILE, NODE
from tests.pages.test_pages import parse
from tests.storage.nodes import SECRET, ServedNode, StorageCluster
from tests.store.file_steps import Catalogue
from tests.support.served_api import everyone
from tests.web.access_world import serving

HOSTILE_KEY = "2026/<script>hit()<b>\u202e\x1b[31m \r\n{{7777*7}}'\".mov"


def run(client: Client, statement: sa.Executable) -> None:
    client.database.run(lambda connection: connection.execute(statement).close())


def post(visitor: httpx.Client, address: str) -> httpx.Response:
    """Send the form of an action."""
    return visitor.post(address, data={"back": ""})


def test_files_are_listed_by_folders_and_keys_page_by_page(visitor: httpx.Client, client: Client) -> None:
    top, below = (visitor.get(f"/files/list?bucket=films{prefix}").text for prefix in ("", "&prefix=2026/"))
    assert 'href="/files/list?bucket=films&amp;prefix=2026%2F">2026/</a>' in top
    assert ("readme.txt" in top, "one.mov" in top) == (True, False)
    assert all(text in below for text in ("one.mov", "raw/", "1 of 2", '<span class="chip warn">at-risk</span>'))
    catalogue = Catalogue(client.database, {NODE: 1})
    bucket = catalogue.bucket("many")
    for number in range(110):
        catalogue.put(bucket, f"clip-{number:03}", 1)
    first = visitor.get("/files/list?bucket=many&view=keys")
    [following] = [link for link in parse(first).links if "after=" in link]
    rest = visitor.get(following.replace("&amp;", "&"))
    clips = [re.findall(r">clip-(\d+)<", answer.text) for answer in (first, rest)]
    assert [(found[0], found[-1]) for found in clips] == [("000", "099"), ("100", "109")]
    assert "after=" not in "".join(parse(rest).links)


def test_a_hostile_key_is_text_and_has_a_page_an_action_and_an_address(visitor: httpx.Client, client: Client) -> None:
    catalogue = Catalogue(client.database, {NODE: 1})
    [bucket] = [one for one in client.buckets.list() if one.name == "films"]
    catalogue.put(bucket, HOSTILE_KEY, 1)
    address = f"/files/show?name={quote(f'films/{HOSTILE_KEY}', safe='')}"
    listed = visitor.get("/files/list?bucket=films&prefix=2026/")
    for answer in (listed, visitor.get(address), visitor.get(address.replace("/show", "/delete"))):
        assert answer.status_code == 200
        parse(answer)
        for text in ("<script>hit", "\u202e", "\x1b", "54439"):
            assert text not in re.sub(r'(value|href|action)="[^"]*"', "", answer.text), text
    assert "\\x0d\\n{{7777" in listed.text, "what is invisible is written as its number"
    [link] = [link for link in parse(listed).links if "script" in link]
    assert visitor.get(link).status_code == 200
    done = post(visitor, address.replace("/show", "/delete"))
    assert (done.status_code, done.headers["location"]) == (303, "/files/list?bucket=films&prefix=2026%2F")
    assert visitor.get(address).status_code == 404


def test_a_file_shows_its_copies_and_is_verified_and_deleted_by_forms(visitor: httpx.Client, client: Client) -> None:
    shown = visitor.get(f"/files/show?name={FILE}").text
    assert all(text in shown for text in ("It has 1 of 2 copies.", "1.5 MB", "Disk is", "online", "/srv/node"))
    assert visitor.get("/files/show?name=nothing").status_code == 422
    done = post(visitor, f"/files/verify?name={FILE}")
    assert (done.status_code, done.headers["location"]) == (303, f"/files/show?name={quote(FILE, safe='')}")
    assert "1 copy is verified by tasks" in visitor.get("/files").text
    post(visitor, f"/files/verify?name={FILE}")
    assert "Tasks verify it already." in visitor.get("/files").text
    [task] = client.tasks.list(queue="storage", name="verify")
    assert '"disk":1' in (task.body or "")
    assert "its copies are removed" in visitor.get(f"/files/delete?name={FILE}").text
    post(visitor, f"/files/delete?name={FILE}")
    assert client.files.list("films", "2026/one").files == []


def test_a_disk_is_drained_and_only_a_silent_one_declared_lost(visitor: httpx.Client, client: Client) -> None:
    shown = visitor.get("/disks/1").text
    assert ("/disks/1/drain" in shown, "/disks/1/lost" in shown) == (True, False)
    assert [post(visitor, f"/disks/1/{verb}").status_code for verb in ("lost", "drain")] == [409, 303]
    drained = visitor.get("/disks/1").text
    assert "3 copies are still on it" in drained
    assert 'href="/disks/1/activate">Undo</a>' in drained
    assert post(visitor, "/disks/1/activate").status_code == 303
    assert client.disks.list()[0].state == "active"
    run(client, sa.update(disks).values(seen_at=seconds_from_now(-60)))
    silent = visitor.get("/disks/1").text
    assert "/disks/1/lost" in silent
    assert "Without another copy that can be read now: 3 files." in visitor.get("/disks/1/lost").text
    assert "its copies count until it is silent for 15 min" in silent
    run(client, sa.update(disks).values(seen_at=seconds_from_now(-1_000)))
    post(visitor, "/disks/1/readonly")
    assert "missing" in visitor.get("/disks").text
    assert [post(visitor, f"/disks/1/{verb}").status_code for verb in ("lost", "remove")] == [303, 409]
    lost = visitor.get("/disks/1").text
    assert "It was declared lost" in lost
    assert ["<dt>Room</dt>" in one for one in (drained, lost)] == [True, False], "nothing more can be stored on it"


def test_files_that_cannot_be_read_now_are_told_though_no_copy_is_missing_yet(
    visitor: httpx.Client, client: Client
) -> None:
    run(client, sa.delete(file_checks))
    assert "All files have their copies." in visitor.get("/storage").text
    run(client, sa.update(disks).values(seen_at=seconds_from_now(-60)))
    post(visitor, "/theme")  # what was read is forgotten
    shown = visitor.get("/storage").text
    assert "1 of 1 disk is away (disk 1 of " in shown
    assert "3 files cannot be read; repair begins at " in shown
    assert "All files have their copies" not in shown
    assert "every file has its copies" not in shown
    for address in ("/files/list?bucket=films", f"/files/show?name={FILE}"):
        shown = visitor.get(address).text
        assert (">unreadable<" in shown, ">whole<" in shown) == (True, False), address


def test_the_brake_is_shown_with_the_action_that_releases_it(visitor: httpx.Client, client: Client) -> None:
    catalogue = Catalogue(client.database)
    silent = [catalogue.disk(name, silent_for=1_000.0) for name in ("a", "b")]
    shown = visitor.get("/storage").text
    assert "The repair brake is on: the disks of 2 nodes are away at once (a, b)" in shown
    assert all(f'href="/disks/{number}/lost"' in shown for number in silent)
    assert post(visitor, f"/disks/{silent[0]}/lost").status_code == 303
    assert "The repair brake is on" not in visitor.get("/storage").text


def test_files_at_risk_are_shown_with_the_reason_page_by_page(visitor: httpx.Client, client: Client) -> None:
    shown = visitor.get("/storage").text
    assert all(text in shown for text in ("no other node has a disk", "films/readme.txt"))
    assert "/queues/kick" not in shown
    client.enqueue("storage", start_in="1h")
    post(visitor, "/theme")  # what was read is forgotten
    assert 'href="/queues/kick?name=storage"' in visitor.get("/storage").text
    assert "None: every file has its copies" in visitor.get("/storage?health=lost").text
    assert visitor.get("/storage?after=nonsense").status_code == 422
    put = Catalogue(client.database, {NODE: 1})
    bucket = put.bucket("many")
    for number in range(51):
        client.database.run(
            postpone_check, put.put(bucket, f"{number:02}.mov", 1).id, 60.0, danger=2, health="at-risk", blocked=None
        )
    [following] = [link for link in parse(visitor.get("/storage?health=at-risk")).links if "after=" in link]
    assert "50.mov" in visitor.get(following).text
    run(client, sa.update(file_checks).values(health="whole"))
    post(visitor, "/theme")  # what was read is forgotten
    assert "All files have their copies." in visitor.get("/storage?health=whole").text


@pytest.mark.parametrize("used", [False, True])
def test_the_navigation_leads_to_storage_only_where_it_is_used(client: Client, *, used: bool) -> None:
    run(client, sa.delete(disks))
    if not used:
        run(client, sa.delete(file_buckets))
    with serving(client, authenticate=everyone) as address, httpx.Client(base_url=address) as http:
        links = parse(http.get("/queues")).links
        assert [one in links for one in ("/storage", "/files", "/disks")] == [used] * 3


def test_a_download_is_an_attachment_also_when_one_copy_is_damaged(client: Client, tmp_path: Path) -> None:
    run(client, sa.delete(disks))
    content, catalogue = os.urandom(3_000_000), Catalogue(client.database)
    url = client.database.url.render_as_string(hide_password=False)
    nodes = [ServedNode(name, tmp_path, catalogue) for name in "ab"]
    download = "/files/download?name=films/%C3%BCnter/%3Cb%3E.mov"
    with (
        nodes[0].served(),
        nodes[1].served(),
        Client(url, secret=SECRET) as program,
        serving(program, authenticate=everyone) as address,
        httpx.Client(base_url=address) as http,
    ):
        cluster = StorageCluster(catalogue, nodes)
        cluster.refresh()
        program.files.put(io.BytesIO(content), "films/ünter/<b>.mov")
        cluster.run_tasks()
        got = http.get(download)
        assert (got.status_code, got.content == content) == (200, True), got.text[:500]
        assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''%3Cb%3E.mov"
        assert got.headers["content-type"] == "application/octet-stream"
        assert "sandbox" in got.headers["content-security-policy"]
        rest = http.get(download, headers={"range": "bytes=2999990-", "if-range": got.headers["etag"]})
        assert (rest.status_code, rest.content) == (206, content[-10:]), "a browser resumes it"
        copies = [node.content_path(client.files.stat("films/ünter/<b>.mov").file.id) for node in nodes]
        with copies[0].open("r+b") as damaged:
            damaged.seek(1_000_000)
            damaged.write(b"damage")
        assert http.get(download).content == content
        assert http.get("/files/download?name=films/nothing").status_code == 404
        for copy in copies:
            copy.unlink(missing_ok=True)
        gone = http.get(download)
        assert (gone.status_code, gone.headers["content-type"]) == (503, "text/html; charset=utf-8")
