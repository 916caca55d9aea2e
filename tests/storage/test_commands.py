"""``peerd files put`` and ``get``, with nodes that are served: the commands that need more than the database."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from peerd import Client
from peerd.store.files.buckets import get_bucket
from peerd.store.files.uploads import NewUpload, enter_upload
from tests.cli.conftest import Peerd
from tests.cli.conftest import peerd as peerd  # noqa: PLC0414 - pytest finds fixtures by their names here
from tests.storage.nodes import SECRET, StorageCluster
from tests.web.access_world import serving


@pytest.fixture
def project(peerd: Peerd, cluster: StorageCluster, tmp_path: Path) -> Path:
    """A folder whose peerd.toml names the cluster, with two films below src/."""
    cluster.catalogue.bucket()
    cluster.refresh()
    url = cluster.catalogue.store.url.render_as_string()
    lines = '[node]\nname = "a"\n', f'[database]\nurl = "{url}"\n', f'[cluster]\nsecret = "{SECRET}"\n'
    (tmp_path / "peerd.toml").write_text("".join(lines))
    (tmp_path / "src/below").mkdir(parents=True)
    (tmp_path / "src/a.mov").write_bytes(os.urandom(2_000_000))
    (tmp_path / "src/below/ö.txt").write_text("text")
    return tmp_path


def test_files_are_put_and_got_one_by_one_by_patterns_and_as_folders(peerd: Peerd, project: Path) -> None:
    assert "films/a.mov  2 MB" in peerd("files", "put", "src/a.mov", "films/").out
    put = peerd("files", "put", "--recursive", "src", "films/2026/", "--meta", "by=me", "--json").json
    assert [one["key"] for one in put["put"]] == ["2026/src/a.mov", "2026/src/below/ö.txt"]
    assert (put["put"][0]["content_type"], put["put"][0]["metadata"]) == ("video/quicktime", {"by": "me"})
    assert peerd("files", "ls", "films/2026").lines == peerd("files", "ls", "films/2026/").lines
    assert "2026/src/" in peerd("files", "ls", "films/2026").out
    peerd("files", "get", "films/2026/src/", "got/", "--recursive")
    assert (project / "got/below/ö.txt").read_text() == "text"
    assert (project / "got/a.mov").read_bytes() == (project / "src/a.mov").read_bytes()
    peerd("files", "get", "films/*.mov", "films/2026/src/below/*", "many/")
    assert sorted(path.name for path in (project / "many").iterdir()) == ["a.mov", "ö.txt"]
    peerd("files", "put", "-", "films/piped", stdin="from a pipe")
    assert peerd("files", "get", "films/piped", "-").out == "from a pipe"
    for limit, has_more in (("1", True), ("2", False)):
        assert peerd("files", "ls", "films/[ap]*", "--limit", limit, "--json").json["has_more"] is has_more
    status = peerd("files", "stat", "films/piped", "films/a.mov").out
    assert re.findall(r"^ *type +(\S+)", status, re.MULTILINE) == ["–", "video/quicktime"]


def test_a_file_that_fails_does_not_keep_the_others_from_being_put(peerd: Peerd, project: Path) -> None:
    answer = peerd("files", "put", "src/nowhere", "src/a.mov", "films/", status=1)
    assert "films/a.mov  2 MB" in answer.out
    assert "nowhere: no such file" in answer.err
    assert peerd("files", "put", "src/a.mov", "films/a.mov", "--only-new", status=1).err.count("error") == 1
    assert "give --recursive" in peerd("files", "put", "src", "films/", status=2).err
    assert "end it with /" in peerd("files", "put", "src/a.mov", "src/a.mov", "films/x", status=2).err
    assert "what stdin gives has no name" in peerd("files", "put", "-", "films/", status=2).err


def test_a_key_with_a_line_feed_is_one_row_and_nothing_of_it_is_invisible(peerd: Peerd, project: Path) -> None:
    assert peerd("files", "put", "src/below/ö.txt", "films/two\nlines\u200b").lines == ["films/two\\nlines\\u200b  4 B"]
    peerd("files", "put", "src/below/ö.txt", "films/fol\nder/x")
    assert [line.split()[-1] for line in peerd("files", "ls", "films").lines[1:]] == [
        "fol\\nder/",
        "two\\nlines\\u200b",
    ]
    assert "films/two\\nlines" in peerd("files", "stat", "films/two\nlines\u200b").out


def test_the_folder_of_another_node_becomes_a_disk_of_this_one_only_if_it_was_moved(
    peerd: Peerd, project: Path, cluster: StorageCluster
) -> None:
    b = cluster.nodes["b"]
    refused = peerd("files", "disks", "add", str(b.paths[0]), status=1).err
    assert f"it is disk {b.disk} of node b ({b.paths[0]}); if it was moved to node a for good, give --move" in refused
    assert peerd("files", "disks", "add", str(b.paths[0]), "--move", "--json").json["disk"] == b.disk
    assert peerd("files", "disks", "add", str(cluster.nodes["a"].paths[0]), "--json").json["node"] == "a"


def test_what_cannot_be_read_now_is_said_before_anything_is_missing(
    peerd: Peerd, project: Path, cluster: StorageCluster
) -> None:
    peerd("files", "put", "src/a.mov", "films/")
    cluster.run_tasks()
    assert "all files are whole" in peerd("files", "at-risk").out
    for disk in [node.disk for node in cluster.nodes.values()]:
        cluster.catalogue.silence(disk, 60.0)
    answer = peerd("files", "at-risk", status=1)
    assert "1 file cannot be read" in answer.out
    assert "whole" not in answer.out
    assert peerd("files", "at-risk", "--json", status=1).json["away"]["files"] == {"files": 1, "at_least": False}
    assert "unreadable, 2 of 2 copies" in peerd("files", "stat", "films/a.mov").out
    disk = peerd("files", "stat", "films/a.mov", "--json").json[0]["copies"][0]["disk"]
    question = f"declare disk {disk} (without another copy that can be read now: 1 file) lost for ever"
    assert question in peerd("files", "disks", "lost", str(disk), "--json", status=1).err


@pytest.mark.parametrize("key", ["x/../../outside", "x//outside", "x/."])
def test_a_key_never_leads_out_of_the_folder_that_files_are_got_into(peerd: Peerd, project: Path, key: str) -> None:
    peerd("files", "put", "src/below/ö.txt", f"films/{key}")
    (project / "deep/er").mkdir(parents=True)
    assert "cannot be a path below" in peerd("files", "get", "films/x/", "deep/er/", "--recursive", status=1).err
    assert not [path for path in project.rglob("*") if path.name == "outside"]


def test_contents_are_moved_by_a_server_with_its_address_and_a_token(
    peerd: Peerd, project: Path, cluster: StorageCluster, tmp_path: Path
) -> None:
    with Client(cluster.catalogue.store, secret=SECRET) as client:
        words = "--right", "read-files", "--right", "write-files", "--files", "films/2026/"
        (tmp_path / "token").write_text(peerd("tokens", "create", "studio", *words).out)
        assert "films/2026/" in peerd("tokens", "list").out
        with serving(client) as address:
            at_server = "--server", address, "--token-file", str(tmp_path / "token")
            put = peerd("files", "put", "--recursive", "src", "films/2026/", "--json", *at_server).json["put"]
            assert [one["key"] for one in put] == ["2026/src/a.mov", "2026/src/below/ö.txt"]
            peerd("files", "get", "films/2026/src/", "got/", "--recursive", *at_server)
            assert (project / "got/a.mov").read_bytes() == (project / "src/a.mov").read_bytes()
            peerd("files", "rm", "films/2026/src/a.mov", *at_server)
            for number, key in enumerate(("2026/one", "2026/two", "other"), 1):
                at: dict[str, Any] = {"content_id": number, "disk_id": cluster.nodes["a"].disk, "class_name": "default"}
                new = NewUpload(id=f"{number}" * 32, key=key, **at)
                client.database.run(enter_upload, client.database.read(get_bucket, "films"), new)
            listed = peerd("files", "uploads", "list", "films/2026/", "--json", *at_server).json["uploads"]
            assert [one["key"] for one in listed] == ["2026/one", "2026/two"]
            assert "is none of its files" in peerd("files", "uploads", "list", "films", *at_server, status=1).err
            assert "is aborted" in peerd("files", "uploads", "abort", "1" * 32, *at_server).out
            assert "there is no upload" in peerd("files", "uploads", "abort", "3" * 32, *at_server, status=1).err
            assert [one.key for one in client.files.uploads.list().uploads] == ["2026/two", "other"]
    assert "does not answer" in peerd("files", "get", "films/a", "--server", "http://127.0.0.1:1", status=1).err
