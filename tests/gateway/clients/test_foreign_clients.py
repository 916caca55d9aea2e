"""Clients of beanstalkd in other languages, unmodified, on peerd's drop-in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.beanstalk_servers import BeanstalkServer
from tests.support.npm import install_packages

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
FIVEBEANS = HERE / "fivebeans"
WITHIN = 100.0
ABOUT_NODE = "emits the error event on failure"
"""A test of fivebeans that needs no server, and fails since Node.js 13, which gives `errno` as a number."""


def run(*command: str, folder: Path = HERE, **environment: str) -> str:
    """Run a program to its end; what it said, which is shown if it failed."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    surroundings = os.environ | environment
    done = subprocess.run(command, cwd=folder, env=surroundings, timeout=WITHIN, check=False, **streams)
    if done.returncode != 0:
        pytest.fail(f"{command[0]} ended with status {done.returncode}:\n{done.stdout[-4000:]}", pytrace=False)
    return str(done.stdout)


def skip_unless(program: str, *works: str, package: str) -> None:
    """Skip the test if a program is missing, or one that says whether its library is there fails."""
    if shutil.which(program) is None or subprocess.run([program, *works], capture_output=True, check=False).returncode:
        pytest.skip(f"{package} is not installed (as root, `make test` installs it where apt is present)")


def test_ruby_beaneater_works(command_server: BeanstalkServer) -> None:
    skip_unless("ruby", "-e", 'require "beaneater"', package="ruby-beaneater")
    assert "all is as expected" in run("ruby", "beaneater_scenario.rb", f"127.0.0.1:{command_server.port}")


def test_php_pheanstalk_works(command_server: BeanstalkServer) -> None:
    skip_unless("php", "-r", 'require "Pheanstalk/autoload.php";', package="php-pda-pheanstalk")
    assert "all is as expected" in run("php", "pheanstalk_scenario.php", "127.0.0.1", str(command_server.port))


@pytest.fixture(scope="module")
def fivebeans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which fivebeans is installed, with its tests and what they need."""
    return install_packages(FIVEBEANS, tmp_path_factory.mktemp("fivebeans"))


def test_node_fivebeans_passes_its_own_tests(command_server: BeanstalkServer, fivebeans: Path) -> None:
    said = run(
        str(fivebeans / "node_modules/.bin/mocha"),
        *("--require", str(FIVEBEANS / "other_port.js"), "--timeout", "8000", "--reporter", "spec"),
        *("--grep", ABOUT_NODE, "--invert", "test/"),
        folder=fivebeans / "node_modules/fivebeans",
        BEANSTALK_PORT=str(command_server.port),
    )
    found = re.search(r"(\d+) passing", said)
    assert found is not None
    assert int(found[1]) >= 50, said
