"""The doorbell on the command line: a real node reports whether it works, and can be rung."""

from __future__ import annotations

import json
from pathlib import Path

from peerd.testing import eventually
from tests.cli.conftest import Peerd
from tests.cli.test_node import call, folder, started  # noqa: F401 - a fixture


def test_status_and_doctor_show_whether_it_works_and_why_not(folder: Path) -> None:  # noqa: F811
    with started(folder):
        eventually(lambda: json.loads(call("status", "--json", folder=folder))["here"]["doorbell"]["works"])
        assert "doorbell works by datagrams, at 127.0.0.1:" in call("status", folder=folder)
        assert {"level": "ok", "subject": "doorbell", "message": "works by datagrams", "remedy": ""} in json.loads(
            call("doctor", "--json", folder=folder)
        )["findings"]
        received = json.loads(call("status", "--json", folder=folder))["here"]["doorbell"]["rings_received"]
        assert json.loads(call("ring", "jobs", "--json", folder=folder)) == {"rung": ["jobs"]}
        eventually(
            lambda: (
                json.loads(call("status", "--json", folder=folder))["here"]["doorbell"]["rings_received"] > received
            ),
        )


def test_a_port_that_is_in_use_is_reported_and_the_node_works_without_it(folder: Path) -> None:  # noqa: F811
    import socket  # noqa: PLC0415

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        with (folder / "peerd.toml").open("a") as file:
            file.write(f"\n[cluster]\nport = {taken.getsockname()[1]}\n")
        text = (folder / "peerd.toml").read_text()
        (folder / "peerd.toml").write_text(text.replace("[cluster]", "", 1) if text.count("[cluster]") > 1 else text)
        with started(folder):
            doorbell = json.loads(call("status", "--json", folder=folder))["here"]["doorbell"]
            assert not doorbell["works"]
            eventually(lambda: "already in use" in call("status", folder=folder))


def test_ringing_without_a_secret_is_refused_with_the_remedy(peerd: Peerd, tmp_path: Path) -> None:
    (tmp_path / "peerd.toml").write_text('[database]\nurl = "mysql://nobody@127.0.0.1:9/nothing"\n')
    assert "there is no secret" in peerd("ring", "--json", status=1).error["message"]
    assert "no queue" in peerd("ring", "no queue!", "--json", status=2).error["message"]
