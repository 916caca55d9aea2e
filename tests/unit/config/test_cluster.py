from __future__ import annotations

from pathlib import Path

from peerd.config import load
from tests.unit.config.helpers import EMPTY, Write, problems

SECRET = "0123456789abcdef"


def test_the_secret_comes_from_its_file_from_the_environment_or_from_peerd_toml(write: Write, project: Path) -> None:
    (project / "cluster.secret").write_text(f"{SECRET}\n")
    assert load(write('[cluster]\nsecret_file = "cluster.secret"\n'), EMPTY).cluster.secret == SECRET
    path = write(f'[cluster]\nsecret = "{SECRET}"\nport = 7070\n')
    settings = load(path, EMPTY)
    assert (settings.cluster.secret, settings.cluster.port) == (SECRET, 7070)
    assert SECRET not in repr(settings)
    settings = load(path, {"PEERD_CLUSTER_SECRET": "another secret, of all", "PEERD_CLUSTER_PORT": "7071"})
    assert (settings.cluster.secret, settings.cluster.port) == ("another secret, of all", 7071)


def test_a_file_that_holds_none_is_refused_with_the_remedy_and_so_is_another_secret_beside_it(
    write: Write, project: Path
) -> None:
    for written, wrong, remedy in (
        (None, "no such file", "/dev/urandom"),
        ("", "is empty", "/dev/urandom"),
        ("short", "a secret has 16 to 1000 characters, this one 5", "/dev/urandom"),
        (SECRET, "there is a secret already", "keep one of them"),
    ):
        if written is not None:
            (project / "cluster.secret").write_text(written)
        own = f'secret = "{SECRET}"\n' if written == SECRET else ""
        [found] = problems(write(f'[cluster]\n{own}secret_file = "cluster.secret"\n'))
        assert (wrong in found, remedy in found) == (True, True), found
