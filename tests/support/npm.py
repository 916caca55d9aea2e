"""Packages of npm that a test uses, as their package-lock.json has them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

NO_NETWORK = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|E5\d\d")
"""How npm says that the registry cannot be reached, or does not work."""


def install_packages(source: Path, folder: Path) -> Path:
    """Install what the package.json of ``source`` needs into a new folder, and return that.

    The test is skipped without npm, or without a network.
    """
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    shutil.copytree(source, folder, dirs_exist_ok=True)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode != 0:
        problem = f"npm could not install the packages of {source.name}: {done.stderr[-500:]}"
        pytest.skip(problem) if NO_NETWORK.search(done.stderr) else pytest.fail(problem)
    return folder
