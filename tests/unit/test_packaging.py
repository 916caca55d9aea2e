from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "peerd"


def test_every_file_that_is_no_module_is_named_as_package_data() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["peerd"]
    named = {file for pattern in patterns for file in PACKAGE.glob(pattern)}
    others = {file for file in PACKAGE.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert others == named


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {file.parent for file in PACKAGE.rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
