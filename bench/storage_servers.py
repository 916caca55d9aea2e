"""What copies, puts and gets are measured on: two nodes of peerd, a daemon of rsync, and nginx with WebDAV."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import sqlalchemy as sa

from bench.databases import SECRET, BenchDatabase
from bench.node import running_node
from peerd.domain.files import FileClass
from peerd.storage.disk.identity import create_disk
from peerd.store.files.buckets import create_bucket
from peerd.store.files.classes import set_class
from peerd.store.files.disks import cluster_identity, list_disks, register_disk
from peerd.store.schema.tables import file_copies, files, tasks
from peerd.testing import eventually
from tests.support.server import ServerUnavailableError, free_port

BUCKET: Final = "bench"
PATIENCE: Final = 120.0
SECTIONS: Final = """\
[storage]
disks = ["{disk}"]
bind = "127.0.0.1:{port}"
reserve = 0.0
"""
NGINX: Final = """\
daemon off;
{user}
worker_processes {workers};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    client_max_body_size 0;
    client_body_temp_path {folder}/root/.bodies;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {folder}/root;
        location / {{ dav_methods PUT DELETE; create_full_put_path on; }}
    }}
}}
"""
RSYNC: Final = """\
port = {port}
address = 127.0.0.1
use chroot = no
pid file = {folder}/rsyncd.pid
log file = {folder}/rsyncd.log
uid = {uid}
gid = {gid}
[files]
path = {source}
read only = yes
"""


@dataclass(frozen=True, slots=True)
class BenchStorageNode:
    """A node with one disk, that runs.

    Attributes:
        name: of the node.
        port: of its storage server.
        disk: the number of its disk.
        folder: of its disk.
        project: the folder with its peerd.toml.
    """

    name: str
    port: int
    disk: int
    folder: Path
    project: Path

    @property
    def url(self) -> str:
        """Of the files in the bucket of the bench."""
        return f"http://127.0.0.1:{self.port}/files/{BUCKET}"

    def processes(self) -> dict[str, psutil.Process]:
        """The processes of storage, by the kind; of several, those with a number behind."""
        found: dict[str, psutil.Process] = {}
        for process in psutil.process_iter():
            try:
                _, slot, _ = process.environ().get("PEERD_PROCESS", "//").split("/")
                if slot.startswith("storage") and Path(process.cwd()) == self.project:
                    found[slot] = process
            except (psutil.Error, ValueError):
                continue
        return found


class BenchStorage:
    """Two nodes that share a catalogue; files are put to the first, and copied to the second.

    Args:
        target: the database of the catalogue.
        nodes: both.
    """

    def __init__(self, target: BenchDatabase, nodes: list[BenchStorageNode]) -> None:
        self._target = target
        self.first, self.second = nodes

    def want_copies(self, number: int) -> None:
        """From now on files shall have so many copies; those that are there are not checked yet."""
        self._target.database.run(set_class, FileClass(name="default", copies=number))

    def copy_all(self) -> float:
        """Copy all files to the second node; seconds from the first task on, which all are planned before."""
        client = self._target.client
        client.queues.pause("storage")
        self.want_copies(2)
        wanted = self.count(files)
        after = client.files.fsck(BUCKET).next_after
        while after is not None:
            after = client.files.fsck(BUCKET, after=after).next_after
        eventually(lambda: self.count(file_copies) == 2 * wanted, PATIENCE, 0.2, message="not all copies are planned")
        os.sync()
        began = time.monotonic()
        client.queues.resume("storage")
        stored = sa.and_(file_copies.c.state == "stored", file_copies.c.disk_id == self.second.disk)
        eventually(lambda: self.count(file_copies, stored) == wanted, 600.0, 0.05, message=self.state)
        return time.monotonic() - began

    def remove_all(self) -> None:
        """Remove all files, and wait until nothing is left of them."""
        self.want_copies(1)
        while self._target.client.files.remove_below(BUCKET, "").has_more:
            pass
        eventually(lambda: self.count(files) + self.count(file_copies) == 0, 600.0, 0.2, message=self.state)

    def count(self, table: sa.Table, condition: sa.ColumnElement[bool] | None = None) -> int:
        """The rows of a table."""
        counted = sa.select(sa.func.count()).select_from(table)
        statement = counted if condition is None else counted.where(condition)
        return int(self._target.database.read(lambda connection: connection.execute(statement).scalar_one()))

    def state(self) -> str:
        """What is left to do, for an error."""
        columns = tasks.c.name, tasks.c.status, tasks.c.last_error
        counted = sa.select(*columns, sa.func.count()).group_by(*columns)
        rows = self._target.database.read(lambda connection: connection.execute(counted).all())
        return f"{self.count(files)} files, {self.count(file_copies)} copies, tasks: {rows}"


@contextmanager
def two_nodes(target: BenchDatabase, folder: Path) -> Iterator[BenchStorage]:
    """Two nodes, each with a disk below the folder."""
    target.database.run(set_class, FileClass(name="default", copies=1))
    target.database.run(create_bucket, BUCKET)
    found: list[BenchStorageNode] = []
    with _node(target, folder, "first") as first, _node(target, folder, "second") as second:
        found += [first, second]
        eventually(lambda: _online(target) == 2, PATIENCE, message="the disks are not online")
        yield BenchStorage(target, found)


@contextmanager
def _node(target: BenchDatabase, folder: Path, name: str) -> Iterator[BenchStorageNode]:
    disk, port = folder / f"disk-{name}", free_port()
    disk.mkdir()
    identity = create_disk(disk, target.database.run(cluster_identity))
    number = target.database.run(register_disk, identity.disk, path=str(disk), node_id=None)
    with running_node(target, name, SECTIONS.format(disk=disk, port=port)) as project:
        _wait_for(port, name)
        yield BenchStorageNode(name, port, number, disk, project)


def _online(target: BenchDatabase) -> int:
    rows = target.database.read(list_disks)
    return sum(row.url is not None and row.problem is None for row in rows)


def _wait_for(port: int, what: str) -> None:
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            return False
        return True

    eventually(answers, PATIENCE, message=f"{what} does not answer")


@contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """Debian's nginx with its WebDAV module; the address of its files."""
    program = _found("nginx")
    port = free_port()
    home = folder / "nginx"
    (home / "root").mkdir(parents=True)
    user = f"user {pwd.getpwuid(os.geteuid()).pw_name};" if os.geteuid() == 0 else ""
    config = home / "nginx.conf"
    config.write_text(NGINX.format(folder=home, port=port, user=user, workers=os.cpu_count()))
    with _running([program, "-p", str(home), "-c", str(config), "-e", str(home / "error.log")]):
        _wait_for(port, "nginx")
        yield f"http://127.0.0.1:{port}/files"


@contextmanager
def rsync_daemon(folder: Path, source: Path) -> Iterator[str]:
    """A daemon of rsync that serves the files of a folder; its address."""
    program = _found("rsync")
    home, port = folder / "rsyncd", free_port()
    home.mkdir()
    config = home / "rsyncd.conf"
    config.write_text(RSYNC.format(folder=home, port=port, source=source, uid=os.geteuid(), gid=os.getegid()))
    with _running([program, "--daemon", "--no-detach", f"--config={config}"]):
        _wait_for(port, "rsync")
        yield f"rsync://127.0.0.1:{port}/files/"


def rsync(url: str, target: Path, *options: str) -> float:
    """Copy the files of a daemon to a folder; seconds."""
    began = time.monotonic()
    subprocess.run([_found("rsync"), "-r", "--whole-file", *options, url, f"{target}/"], check=True)
    return time.monotonic() - began


def versions() -> str:
    """Of the programs that peerd is compared with."""
    rsync_version = subprocess.run([_found("rsync"), "--version"], capture_output=True, text=True, check=True).stdout
    nginx_version = subprocess.run([_found("nginx"), "-v"], capture_output=True, text=True, check=True).stderr
    return f"rsync {rsync_version.split()[2]}, {nginx_version.strip().removeprefix('nginx version: ')}"


def _found(program: str) -> str:
    """The path of a program. Raises ServerUnavailableError."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        raise ServerUnavailableError(f"{program} is not installed")
    return path


@contextmanager
def _running(command: list[str]) -> Iterator[None]:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.terminate()
        server.wait(30)


__all__ = ["SECRET", "BenchStorage", "BenchStorageNode", "nginx", "rsync", "rsync_daemon", "two_nodes", "versions"]
