from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from peerd.cli.app import COMMANDS, load_command
from tests.cli.conftest import Peerd


def walk(command: Any, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The command and all below it."""
    below = getattr(command, "commands", {})
    return [path, *[one for name, sub in below.items() for one in walk(sub, (*path, name))]]


def command_at(path: tuple[str, ...]) -> Any:
    """The command of these words."""
    command = load_command(path[0])
    for name in path[1:]:
        command = command.commands[name]
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_has_the_help_text_of_each_command(name: str) -> None:
    help_text = load_command(name).help
    assert help_text.strip().splitlines()[0] == COMMANDS[name][2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_page_and_the_common_options(peerd: Peerd, name: str) -> None:
    for path in walk(load_command(name), (name,)):
        page = peerd(*path, "--help").out
        if not hasattr(command_at(path), "commands"):
            for option in ("--json", "--config", "--database", "--debug"):
                assert option in page, path


def test_help_loads_neither_database_nor_config() -> None:
    code = (
        "import sys; from peerd.cli.app import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "heavy = ('sqlalchemy', 'pydantic', 'alembic', 'msgspec', 'peerd.cli.node.lifecycle')\n"
        "print([module for module in heavy if module in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_no_error(peerd: Peerd) -> None:
    line = f"{sys.executable} -m peerd.cli --help | head -1; echo ${{PIPESTATUS[1]}}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert "Traceback" not in ran.stderr
    assert ran.stdout.splitlines()[-1] == "0"


def test_the_version_is_printed(peerd: Peerd) -> None:
    assert peerd("--version").out.startswith("peerd 0.")
