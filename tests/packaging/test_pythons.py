"""The wheel, without extras, on each Python that this machine has: the first task of README, from `peerd init` on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerd.testing import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def find_python(version: str) -> Path | None:
    """An interpreter of this version: from PATH, /usr/local, or pyenv, whose commands on PATH may start none."""
    places = [os.environ.get("PATH", ""), "/usr/local/bin"]
    places += [str(folder) for folder in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))]
    for place in os.pathsep.join(places).split(os.pathsep):
        program = Path(place, f"python{version}")
        if os.access(program, os.X_OK) and subprocess.run([program, "-c", ""], capture_output=True).returncode == 0:  # noqa: PLW1510
            return program
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, which keeps what setuptools writes out of the repository."""
    python = next(filter(None, map(find_python, VERSIONS)), None)
    if python is None:
        pytest.skip(f"this machine has none of Python {', '.join(VERSIONS)}")
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    run(python, "-m", "venv", folder / "venv")
    run(folder / "venv/bin/pip", "wheel", "--no-deps", "--wheel-dir", folder, source)
    [wheel] = folder.glob("*.whl")
    return wheel


def run(*command: str | Path, cwd: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PEERD_", "PYTHON"))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment, timeout=300)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(params=VERSIONS)
def peerd(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Path:
    """The command, installed without extras; dependencies are wheels of the versions of constraints.txt."""
    python = find_python(request.param)
    if python is None:
        pytest.skip(f"this machine has no Python {request.param}: not in PATH, /usr/local/bin or ~/.pyenv/versions")
    run(python, "-m", "venv", tmp_path / "venv")
    options = ("--disable-pip-version-check", "--only-binary", ":all:", "--no-compile")
    try:
        run(tmp_path / "venv/bin/pip", "install", *options, "--constraint", ROOT / "constraints.txt", wheel)
    except AssertionError as error:
        raise AssertionError(
            f"Python {request.param} has no wheels of the dependencies that constraints.txt names: "
            "renew it (make constraints), or leave this version out"
        ) from error
    return tmp_path / "venv/bin/peerd"


@pytest.fixture
def node(peerd: Path, tmp_path: Path) -> Iterator[Path]:
    """A project as `peerd init` makes it, and its node."""
    project = tmp_path / "studio"
    run(peerd, "init", project)
    with (tmp_path / "output").open("w") as output:
        up = subprocess.Popen([peerd, "up"], cwd=project, stdout=output, stderr=output)
    try:
        status = [str(peerd), "status", "--check"]
        eventually(
            lambda: subprocess.run(status, cwd=project, capture_output=True, check=False).returncode == 0,
            timeout=120,
            message=(tmp_path / "output").read_text,
        )
        yield project
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 0, (tmp_path / "output").read_text()
    finally:
        up.kill()
        up.wait()


def test_the_first_task_of_readme_is_done(peerd: Path, node: Path) -> None:
    run(peerd, "enqueue", "hello", "greet", '{"name": "you", "seconds": 1}', cwd=node)
    run(peerd, "tasks", "watch", "--until-done", cwd=node)
    [task] = json.loads(run(peerd, "tasks", "list", "--json", cwd=node))["items"]
    shown = json.loads(run(peerd, "tasks", "show", str(task["id"]), "--json", cwd=node))
    assert (shown["status"], json.loads(shown["result"])) == ("done", {"greeting": "Hello, you!"})
