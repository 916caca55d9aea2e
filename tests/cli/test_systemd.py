"""`peerd systemd`: a unit that systemd accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Peerd


def lines_of(unit: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))


def test_a_unit_leaves_the_longest_grace_and_is_of_the_projects_owner(peerd: Peerd, project: Path) -> None:
    (project / "jobs.py").write_text("")
    (project / "peerd.toml").write_text('[node]\nname = "here"\n[workers.video]\ntasks = "jobs:video"\ngrace = "10m"\n')
    made = peerd("systemd", "--json").json
    unit = lines_of(made["unit"])
    assert made["name"] == "peerd-here.service"
    assert unit["TimeoutStopSec"] == "630s"
    assert (unit["Type"], unit["KillMode"], unit["User"]) == ("notify", "mixed", project.owner())
    assert unit["WorkingDirectory"] == str(project)
    assert unit["ExecStart"].endswith(f"up --config {project / 'peerd.toml'}")
    assert unit["ExecReload"].endswith(f"reload --config {project / 'peerd.toml'}")
    assert unit["WantedBy"] == "multi-user.target"
    own = lines_of(peerd("systemd", "--user", "--json").json["unit"])
    assert own["WantedBy"] == "default.target"
    assert not own.keys() & {"User", "ProtectSystem", "PrivateTmp"}, "it takes no privileges"


def test_what_the_environment_gives_is_in_the_unit_but_for_the_address_of_the_database(
    peerd: Peerd, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERD_NODE_NAME", "two")
    monkeypatch.setenv("PEERD_DATABASE_URL", "mysql://peerd:secret@db/peerd")
    unit = peerd("systemd").out
    assert "Environment=PEERD_NODE_NAME=two" in unit
    assert "secret" not in unit
    assert "# PEERD_DATABASE_URL was given and is left out" in unit


def test_a_unit_is_not_written_to_a_folder_that_is_not_there(peerd: Peerd, project: Path) -> None:
    (project / "units").mkdir()
    for output in ("missing/dir", "missing/", "missing"):
        assert f"there is no folder {output.rstrip('/')}" in peerd("systemd", "--output", output, status=1).err
    assert not (project / "missing").exists()
    assert peerd("systemd", "--output", "units/mine.service", "--json").json["file"] == "units/mine.service"
    assert peerd("systemd", "--output", "units", "--json").json["file"] == "units/peerd-here.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_unit_also_of_a_folder_with_an_odd_name(
    peerd: Peerd, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = project / "my 100% $tudio"
    odd.mkdir()
    shutil.copy(project / "peerd.toml", odd)
    monkeypatch.setenv("PEERD_NODE_ZONE", 'rack "a" $1')
    monkeypatch.chdir(odd)
    for options in ((), ("--user",), ("--as", "daemon")):
        unit = odd / peerd("systemd", *options, "--output", ".", "--json").json["file"]
        command = ["systemd-analyze", "verify", str(unit)]
        verified = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        ours = [line for line in verified.stderr.splitlines() if unit.name in line]
        assert (verified.returncode, ours) == (0, []), options
