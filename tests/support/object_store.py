"""S3-compatible servers for tests, each a process of its own on a free port of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.testing import eventually
from tests.support.server import free_port as free_port  # noqa: PLC0414 - its users take it from here

ACCESS_KEY, SECRET_KEY = "test:tester", "the-secret-of-tests"
BUCKET = "copies"


class ObjectStoreServer:
    """A server that runs, with a bucket `copies`."""

    def __init__(
        self, url: str, folder: Path, process: subprocess.Popen[bytes] | None = None, **credentials: str
    ) -> None:
        self.url = url
        self.folder = folder
        self.process = process
        self.access_key = credentials.get("access_key", ACCESS_KEY)
        self.secret = credentials.get("secret", SECRET_KEY)
        checksums = dict.fromkeys(("request_checksum_calculation", "response_checksum_validation"), "when_required")
        how: dict[str, Any] = {"signature_version": "s3v4", "retries": {"total_max_attempts": 1}, **checksums}
        self.client = boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, **how),
        )

    def options(self, **more: Any) -> ObjectDiskOptions:
        file = self.folder / "credentials"
        file.write_text(credentials_text(self.access_key, self.secret))
        where = {"bucket": BUCKET, "endpoint": self.url, "prefix": "peerd/one", "credentials_file": str(file)}
        return ObjectDiskOptions(**{"name": "archive", "capacity": 10**9, **where, **more})

    def names(self) -> list[str]:
        return sorted(one["Key"] for one in self.client.list_objects_v2(Bucket=BUCKET).get("Contents", []))

    def uploads(self) -> list[str]:
        return [one["Key"] for one in self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])]

    def empty(self) -> None:
        for name in self.names():
            self.client.delete_object(Bucket=BUCKET, Key=name)

    def pause(self) -> None:
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def stop(self) -> None:
        self._send(signal.SIGKILL).wait()

    def _send(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process


def credentials_text(access_key: str, secret: str) -> str:
    return f"[default]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret}\n"


@contextmanager
def moto_server(folder: Path) -> Iterator[ObjectStoreServer]:
    """Moto, which keeps everything in memory, and accepts any credentials."""
    port = free_port()
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    with _served([command], port, folder, dict(os.environ)) as server:
        yield server


@contextmanager
def swift_server(folder: Path) -> Iterator[ObjectStoreServer]:
    """OpenStack Swift of Debian with its S3 interface: one proxy, one copy of each object, signatures are verified."""
    if shutil.which("swift-proxy-server") is None:
        pytest.skip("Swift is not installed: apt-get install swift-proxy swift-account swift-container swift-object")
    ports = {name: free_port() for name in ("proxy", "account", "container", "object")}
    _write_swift_files(folder, ports)
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    commands = [["/usr/bin/python3", "-c", SWIFT_MAIN, str(folder), name] for name in ports]
    with _served(commands, ports["proxy"], folder, environment) as server:
        yield server


@contextmanager
def _served(
    commands: list[list[str]], port: int, folder: Path, environment: dict[str, str]
) -> Iterator[ObjectStoreServer]:
    path = folder / "server.log"
    with path.open("wb") as log:
        processes = [subprocess.Popen(command, stdout=log, stderr=log, env=environment) for command in commands]
    server = ObjectStoreServer(f"http://127.0.0.1:{port}", folder, processes[0])
    try:
        eventually(lambda: _makes_bucket(server), timeout=60, message=lambda: path.read_text()[-3000:])
        yield server
    finally:
        server.client.close()
        for process in processes:
            process.kill()
            process.wait()


def _makes_bucket(server: ObjectStoreServer) -> bool:
    with suppress(BotoCoreError, ClientError):
        server.client.create_bucket(Bucket=BUCKET)
        return True
    return False


SWIFT_MAIN = """
import sys
from swift.common import utils
from swift.common import storage_policy, ring
folder, name = sys.argv[1:]
import swift.common.utils as utils
utils.SWIFT_CONF_FILE = folder + "/swift.conf"
utils.HASH_PATH_SUFFIX = b"suffix-of-tests"
utils.HASH_PATH_PREFIX = b""
from swift.common.wsgi import run_wsgi
sys.argv = ["swift-%s-server" % name, folder + "/%s.conf" % name]
sys.exit(run_wsgi(folder + "/%s.conf" % name, name + "-server"))
"""

SWIFT_RINGS = """
import sys
from swift.common.ring import RingBuilder
folder, *rings = sys.argv[1:]
for name, port in (ring.split("=") for ring in rings):
    builder = RingBuilder(4, 1, 1)
    address = dict(ip="127.0.0.1", port=int(port), replication_ip="127.0.0.1", replication_port=int(port))
    builder.add_dev(dict(address, region=1, zone=1, device="d1", weight=1))
    builder.rebalance()
    builder.get_ring().save(folder + "/" + name + ".ring.gz")
"""


def _write_swift_files(folder: Path, ports: dict[str, int]) -> None:
    (folder / "devices" / "d1").mkdir(parents=True)
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = suffix-of-tests\n[storage-policy:0]\nname = one\ndefault = yes\n"
    )
    common = (
        f"[DEFAULT]\nbind_ip = 127.0.0.1\nswift_dir = {folder}\ndevices = {folder}/devices\nmount_check = false\n"
        f"user = root\nworkers = 0\nlog_name = swift\nlog_address = {folder}/none\nfallocate_reserve = 0\n"
        f"recon_cache_path = {folder}\ndisable_fallocate = true\n"
    )
    for name in ("account", "container", "object"):
        (folder / f"{name}.conf").write_text(
            f"{common}bind_port = {ports[name]}\n[pipeline:main]\npipeline = {name}-server\n"
            f"[app:{name}-server]\nuse = egg:swift#{name}\n"
        )
    rings = [str(folder), *(f"{name}={ports[name]}" for name in ("account", "container", "object"))]
    subprocess.run(["/usr/bin/python3", "-c", SWIFT_RINGS, *rings], check=True, capture_output=True, cwd=folder)
    pipeline = "cache listing_formats s3api tempauth bulk slo dlo copy proxy-server"
    (folder / "proxy.conf").write_text(
        f"{common}bind_port = {ports['proxy']}\n[pipeline:main]\npipeline = {pipeline}\n"
        "[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\nallow_account_management = true\n"
        "error_suppression_interval = 0\n"  # else eleven requests before its servers answer make it refuse for 60 s
        "[filter:cache]\nuse = egg:swift#memcache\nmemcache_servers = 127.0.0.1:1\n"
        "[filter:listing_formats]\nuse = egg:swift#listing_formats\n"
        "[filter:s3api]\nuse = egg:swift#s3api\nlocation = us-east-1\ns3_acl = false\n"
        "[filter:tempauth]\nuse = egg:swift#tempauth\n"
        f"user_test_tester = {SECRET_KEY} .admin\n"
        "[filter:bulk]\nuse = egg:swift#bulk\n[filter:slo]\nuse = egg:swift#slo\n[filter:dlo]\nuse = egg:swift#dlo\n"
        "[filter:copy]\nuse = egg:swift#copy\n"
    )
