from __future__ import annotations

from pathlib import Path

from peerd.config import Settings, check
from peerd.config.loading import Check
from peerd.config.storage import COPIERS, MANAGER, SERVER
from tests.support.certificates import make_certificate
from tests.support.rows import rows


def checked(folder: Path, text: str) -> Check:
    (folder / "peerd.toml").write_text(text)
    return check(folder / "peerd.toml", {})


def settings_of(folder: Path, text: str) -> Settings:
    settings = checked(folder, text).settings
    assert settings is not None
    return settings


def test_a_node_with_disks_runs_a_server_copiers_and_a_keeper(tmp_path: Path) -> None:
    text = """
[storage]
disks = ["disk-1", "/srv/disk-2"]
bind = "10.0.0.7:7480"
server_processes = 2
copies_at_once = 3
rate = "50MB"
grace = "30m"
"""
    settings = settings_of(tmp_path, text)
    copiers, manager, server = settings.workers[COPIERS], settings.workers[MANAGER], settings.web[SERVER]
    assert (copiers.tasks, copiers.count, server.bind) == (("peerd.storage.worker:storage",), 3, ("10.0.0.7:7480",))
    assert server.processes == 2
    assert copiers.options == manager.options == server.options
    assert copiers.options["disks"] == [f"{tmp_path}/disk-1", "/srv/disk-2"]
    assert (copiers.options["url"], copiers.options["rate"]) == ("http://10.0.0.7:7480", 50_000_000)
    assert copiers.options["grace"] == 1800.0
    without = settings_of(tmp_path, "[storage]\nreserve = 0.1\n")
    assert not {COPIERS, MANAGER, SERVER} & {*without.workers, *without.web}


@rows("bind, address, url", [
    ("[::1]:7480", None, "http://[::1]:7480"), (":7480", "https://files-1.example:443", "https://files-1.example:443"),
    (":7480", "files-1:9000", "http://files-1:9000"), ("0.0.0.0:7480", None, "http://node-1.example:7480"),
])  # fmt: skip
def test_other_nodes_reach_a_node_at_its_address(tmp_path: Path, bind: str, address: str | None, url: str) -> None:
    own = "" if address is None else f'address = "{address}"\n'
    text = f'[node]\nname = "n"\naddress = "node-1.example"\n[storage]\ndisks = "d"\nbind = "{bind}"\n{own}'
    settings = settings_of(tmp_path, text)
    assert settings.workers[COPIERS].options["url"] == url


@rows("text, problem", [
    ('disks = "d"\nbind = "127.0.0.1:0"', "127.0.0.1:0 is no address for other nodes"),
    ('disks = "d"\nbind = "unix:/tmp/s"', "unix:/tmp/s is no address for other nodes"),
    ('disks = "d"\n[workers.storage]\ntasks = "a:b"', "[storage] runs processes of this name"),
    ('disks = "d"\n[web.storage-server]\napp = "a:b"\nbind = ":1"', "[storage] runs processes of this name"),
    ('disks = "d"\n[database]\nurl = "mysql://u@h/d"', "nodes cannot prove to each other that they are nodes"),
    ("reserve = 1.5", "must be"), ('scrub_every = "0s"', "must be"),
])  # fmt: skip
def test_what_cannot_work_is_reported(tmp_path: Path, text: str, problem: str) -> None:
    found = checked(tmp_path, f"[storage]\n{text}\n")
    assert any(problem in one.message for one in found.problems), [str(one) for one in found.problems]


def test_s3_and_a_certificate_are_options_of_the_server(tmp_path: Path) -> None:
    text = '[storage]\ndisks = "d"\nbind = "127.0.0.1:7480"\ns3_domain = "S3.example"\n'
    settings = settings_of(tmp_path, f"{text}s3 = true\n")
    options = settings.web[SERVER].options
    assert (options["s3"], options["s3_domain"]) == (True, "s3.example")
    assert [problem.key for problem in checked(tmp_path, text).problems] == ["storage.s3_domain"]
    assert checked(tmp_path, '[storage]\ns3 = true\ns3_domain = "a b"\n').problems
    certificate, key = make_certificate(tmp_path, "node")
    files = 'tls_certificate = "node.pem"\ntls_key = "node.key"\n'
    for own in ("", 'address = "node-1.example:7480"\n'):
        text = f'[storage]\ndisks = "d"\nbind = "node-1.example:7480"\n{files}{own}'
        server = settings_of(tmp_path, text).web[SERVER]
        assert (server.tls_certificate, server.tls_key) == (certificate, key)
        assert server.options["url"] == "https://node-1.example:7480"


def test_files_of_tls_that_cannot_be_used_are_problems_of_their_section(tmp_path: Path) -> None:
    make_certificate(tmp_path, "node")
    (tmp_path / "node.key").chmod(0o644)
    make_certificate(tmp_path, "other")
    text = """
[storage]
disks = "d"
tls_certificate = "node.pem"
tls_key = "other.key"
[web]
site = { app = "site:app", bind = ":8080", tls_certificate = "none.pem", tls_key = "node.key" }
half = { app = "site:app", bind = ":8081", tls_key = "node.key" }
[gateway]
queue.tls_certificate = "node.pem"
"""
    found = checked(tmp_path, text)
    assert {problem.key: problem.message for problem in found.problems} == {
        "storage.tls_key": "is no key of tls_certificate, or is protected by a password (key values mismatch)",
        "web.site.tls_certificate": f"{tmp_path}/none.pem: no such file or directory",
        "web.half.tls_key": "tls_certificate is missing",
        "gateway.queue.tls_certificate": "tls_key is missing",
    }
