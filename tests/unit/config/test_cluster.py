"""[cluster]: the secret, and the address on which a node listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerd.config import check, load

SECRET = "0123456789abcdef"


def problems(folder: Path, text: str) -> str:
    (folder / "peerd.toml").write_text(text)
    return "\n".join(map(str, check(folder / "peerd.toml", {}).problems))


def test_the_secret_comes_from_its_file_from_the_environment_or_from_peerd_toml(tmp_path: Path) -> None:
    (tmp_path / "cluster.secret").write_text(f"{SECRET}\n")
    assert problems(tmp_path, '[cluster]\nsecret_file = "cluster.secret"\n') == ""
    assert load(tmp_path / "peerd.toml", {}).cluster.secret == SECRET
    assert problems(tmp_path, f'[cluster]\nsecret = "{SECRET}"\nport = 7070\n') == ""
    settings = load(tmp_path / "peerd.toml", {})
    assert (settings.cluster.secret, settings.cluster.port) == (SECRET, 7070)
    given = {"PEERD_CLUSTER_SECRET": "another secret, of all", "PEERD_CLUSTER_PORT": "7071"}
    settings = load(tmp_path / "peerd.toml", given)
    assert (settings.cluster.secret, settings.cluster.port) == ("another secret, of all", 7071)


def test_the_secret_is_not_shown(tmp_path: Path) -> None:
    assert problems(tmp_path, f'[cluster]\nsecret = "{SECRET}"\n') == ""
    assert SECRET not in repr(load(tmp_path / "peerd.toml", {}))


@pytest.mark.parametrize(
    "written, wrong",
    [
        (None, "no such file"),
        ("", "is empty"),
        ("short", "a secret has 16 to 1000 characters, this one 5"),
    ],
)
def test_a_file_that_holds_none_is_refused_with_the_remedy(tmp_path: Path, written: str | None, wrong: str) -> None:
    if written is not None:
        (tmp_path / "cluster.secret").write_text(written)
    found = problems(tmp_path, '[cluster]\nsecret_file = "cluster.secret"\n')
    assert wrong in found
    assert "/dev/urandom" in found


def test_two_secrets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.secret").write_text(SECRET)
    found = problems(tmp_path, f'[cluster]\nsecret = "{SECRET}"\nsecret_file = "cluster.secret"\n')
    assert "there is a secret already" in found


def test_short_secrets_and_impossible_ports_are_refused(tmp_path: Path) -> None:
    assert "secret" in problems(tmp_path, '[cluster]\nsecret = "short"\n')
    assert "port" in problems(tmp_path, "[cluster]\nport = 65536\n")
