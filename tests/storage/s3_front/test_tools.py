"""s3cmd and rclone, unmodified, against nodes: what somebody does with them on a day."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from peerd.doorbell.cluster_secret import derive_access_secret
from tests.storage.nodes import SECRET
from tests.storage.s3_front.conftest import S3Cluster

pytestmark = pytest.mark.slow
MIB = 1024 * 1024
CONTENTS = {
    "one.txt": b"one",
    "empty": b"",
    "folder/ä ö+&.txt": b"two",
    "folder/日本.bin": bytes(range(256)) * 1000,
    "big.mov": b"0123456789abcdef" * (20 * MIB // 16),
}


def run(*command: str, fails: bool = False, **environment: str) -> str:
    environment |= {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, content in CONTENTS.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "back").mkdir()
    return tmp_path / "tree"


def received(tree: Path) -> dict[str, bytes]:
    back = tree.with_name("back")
    return {str(path.relative_to(back)): path.read_bytes() for path in back.rglob("*") if path.is_file()}


@pytest.mark.skipif(shutil.which("s3cmd") is None, reason="s3cmd is not installed")
def test_s3cmd_puts_lists_gets_syncs_and_deletes(cluster: S3Cluster, tree: Path, tmp_path: Path) -> None:
    key, host = cluster.key(), cluster.a.url.removeprefix("http://")
    configuration = tmp_path / "s3cfg"
    configuration.write_text(
        f"[default]\naccess_key = {key.id}\nsecret_key = {derive_access_secret(SECRET, key.id)}\n"
        f"host_base = {host}\nhost_bucket = {host}\nuse_https = False\nmultipart_chunk_size_mb = 5\n"
    )

    def s3cmd(*arguments: str, fails: bool = False) -> str:
        return run("s3cmd", "-c", str(configuration), *arguments, fails=fails)

    s3cmd("mb", "s3://films")
    s3cmd("put", str(tree / "big.mov"), "s3://films/a/big ä.mov", "--add-header=x-amz-meta-take: 3")
    assert f"{20 * MIB}" in s3cmd("ls", "s3://films/a/")
    assert "x-amz-meta-take: 3" in s3cmd("info", "s3://films/a/big ä.mov")
    s3cmd("sync", f"{tree}/", "s3://films/tree/")
    s3cmd("sync", "s3://films/tree/", f"{tree.with_name('back')}/")
    assert received(tree) == CONTENTS
    assert "upload" not in s3cmd("sync", f"{tree}/", "s3://films/tree/")
    s3cmd("mv", "s3://films/tree/one.txt", "s3://films/three.txt")
    assert "three.txt" in s3cmd("ls", "s3://films")
    s3cmd("get", "s3://films/none", str(tmp_path / "none"), fails=True)
    s3cmd("rb", "s3://films", fails=True)
    s3cmd("del", "--recursive", "--force", "s3://films")
    s3cmd("rb", "s3://films")
    cluster.run_tasks()
    assert cluster.a.contents() == []


@pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed")
def test_rclone_copies_checks_moves_and_purges(cluster: S3Cluster, tree: Path, tmp_path: Path) -> None:
    key = cluster.key()
    (tmp_path / "rclone.conf").write_text(
        f"[peerd]\ntype = s3\nprovider = Other\nendpoint = {cluster.a.url}\naccess_key_id = {key.id}\n"
        f"secret_access_key = {derive_access_secret(SECRET, key.id)}\n"
    )

    def rclone(*arguments: str) -> str:
        small = ("--s3-upload-cutoff", "5Mi", "--s3-chunk-size", "5Mi", "--retries", "1")
        return run("rclone", *arguments, *small, RCLONE_CONFIG=str(tmp_path / "rclone.conf"))

    rclone("mkdir", "peerd:films")
    rclone("copy", str(tree), "peerd:films/tree")
    assert "0 differences found" in rclone("check", "--download", str(tree), "peerd:films/tree")
    rclone("copy", "peerd:films/tree", str(tree.with_name("back")))
    assert received(tree) == CONTENTS
    times = [(root / "one.txt").stat().st_mtime_ns for root in (tree, tree.with_name("back"))]
    assert times[0] == times[1], "kept as metadata"
    rclone("moveto", "peerd:films/tree/one.txt", "peerd:films/other/one.txt")
    rclone("sync", str(tree / "folder"), "peerd:films/tree")
    assert sorted(rclone("lsf", "-R", "peerd:films/tree").split("\n")) == ["", "ä ö+&.txt", "日本.bin"]
    rclone("purge", "peerd:films")
    cluster.run_tasks()
    assert cluster.a.contents() == []
