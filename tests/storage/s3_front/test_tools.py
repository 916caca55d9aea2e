"""s3cmd and rclone, unmodified, against nodes: what somebody does with them on a day."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from peerd.doorbell.access_secret import derive_access_secret
from tests.storage.nodes import SECRET
from tests.storage.s3_front.conftest import S3Cluster

pytestmark = pytest.mark.slow
MIB = 1024 * 1024


def run(*command: str, environment: dict[str, str] | None = None, fails: bool = False) -> str:
    path = os.environ["PATH"]
    done = subprocess.run(
        command,
        env={"PATH": path, "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stdout + done.stderr


class Files:
    """Folders of a test: a tree to send, and one to receive."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.back = folder / "tree", folder / "back"
        self.tree.mkdir()
        for name, content in self.contents().items():
            (self.tree / name).parent.mkdir(exist_ok=True)
            (self.tree / name).write_bytes(content)

    @staticmethod
    def contents() -> dict[str, bytes]:
        return {
            "one.txt": b"one",
            "empty": b"",
            "folder/ä ö+&.txt": b"two",
            "folder/日本.bin": bytes(range(256)) * 1000,
            "big.mov": b"0123456789abcdef" * (20 * MIB // 16),
        }

    def received(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.back)): path.read_bytes() for path in self.back.rglob("*") if path.is_file()}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    folder = tmp_path / "files"
    folder.mkdir()
    return Files(folder)


@pytest.mark.skipif(shutil.which("s3cmd") is None, reason="s3cmd is not installed")
def test_s3cmd_puts_lists_gets_syncs_and_deletes(cluster: S3Cluster, files: Files, tmp_path: Path) -> None:
    key = cluster.key()
    host = cluster.a.url.removeprefix("http://")
    configuration = tmp_path / "s3cfg"
    configuration.write_text(
        f"[default]\naccess_key = {key.id}\nsecret_key = {derive_access_secret(SECRET, key.id)}\n"
        f"host_base = {host}\nhost_bucket = {host}\nuse_https = False\nmultipart_chunk_size_mb = 5\n"
    )

    def s3cmd(*arguments: str, fails: bool = False) -> str:
        return run("s3cmd", "-c", str(configuration), *arguments, fails=fails)

    s3cmd("mb", "s3://films")
    assert "s3://films" in s3cmd("ls")
    s3cmd("put", str(files.tree / "big.mov"), "s3://films/a/big ä.mov", "--add-header=x-amz-meta-take: 3")
    assert f"{20 * MIB}" in s3cmd("ls", "s3://films/a/")
    info = s3cmd("info", "s3://films/a/big ä.mov")
    assert "x-amz-meta-take: 3" in info, info
    target = tmp_path / "got"
    s3cmd("get", "s3://films/a/big ä.mov", str(target))
    assert target.read_bytes() == files.contents()["big.mov"]
    s3cmd("sync", f"{files.tree}/", "s3://films/tree/")
    files.back.mkdir()
    s3cmd("sync", "s3://films/tree/", f"{files.back}/")
    assert files.received() == files.contents()
    assert "upload" not in s3cmd("sync", f"{files.tree}/", "s3://films/tree/")
    s3cmd("cp", "s3://films/tree/one.txt", "s3://films/two.txt")
    s3cmd("mv", "s3://films/two.txt", "s3://films/three.txt")
    assert "three.txt" in s3cmd("ls", "s3://films")
    assert "s3://films/none" in s3cmd("get", "s3://films/none", str(tmp_path / "none"), fails=True)
    s3cmd("rb", "s3://films", fails=True)
    s3cmd("del", "--recursive", "--force", "s3://films")
    s3cmd("rb", "s3://films")
    cluster.run_tasks()
    assert cluster.a.contents() == []


@pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed")
def test_rclone_copies_checks_moves_and_purges(cluster: S3Cluster, files: Files, tmp_path: Path) -> None:
    key = cluster.key()
    environment = {
        "RCLONE_CONFIG": str(tmp_path / "rclone.conf"),
        "RCLONE_CONFIG_PEERD_TYPE": "s3",
        "RCLONE_CONFIG_PEERD_PROVIDER": "Other",
        "RCLONE_CONFIG_PEERD_ACCESS_KEY_ID": key.id,
        "RCLONE_CONFIG_PEERD_SECRET_ACCESS_KEY": derive_access_secret(SECRET, key.id),
        "RCLONE_CONFIG_PEERD_ENDPOINT": cluster.a.url,
    }
    Path(environment["RCLONE_CONFIG"]).write_text("")

    def rclone(*arguments: str, fails: bool = False) -> str:
        small = ("--s3-upload-cutoff", "5Mi", "--s3-chunk-size", "5Mi", "--retries", "1")
        return run("rclone", *arguments, *small, environment=environment, fails=fails)

    rclone("mkdir", "peerd:films")
    assert "films" in rclone("lsd", "peerd:")
    rclone("copy", str(files.tree), "peerd:films/tree")
    assert "0 differences found" in rclone("check", str(files.tree), "peerd:films/tree")
    assert "0 differences found" in rclone("check", "--download", str(files.tree), "peerd:films/tree")
    rclone("copy", "peerd:films/tree", str(files.back))
    assert files.received() == files.contents()
    times = {path: path.stat().st_mtime_ns for path in files.tree.rglob("*") if path.is_file()}
    for path, time in times.items():
        assert (files.back / path.relative_to(files.tree)).stat().st_mtime_ns == time, "kept as metadata"
    rclone("moveto", "peerd:films/tree/one.txt", "peerd:films/other/one.txt")
    assert "one.txt" in rclone("ls", "peerd:films/other")
    rclone("sync", str(files.tree / "folder"), "peerd:films/tree")
    assert sorted(rclone("lsf", "-R", "peerd:films/tree").split("\n")) == ["", "ä ö+&.txt", "日本.bin"]
    rclone("purge", "peerd:films")
    cluster.run_tasks()
    assert cluster.a.contents() == []
