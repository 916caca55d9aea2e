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


def test_the_table_of_commands_has_the_help_text_of_each_command() -> None:
    texts = {name: load_command(name).help.strip().splitlines()[0] for name in COMMANDS}
    assert texts == {name: COMMANDS[name][2] for name in COMMANDS}


@pytest.mark.slow
def test_every_command_has_a_help_page_and_the_common_options(peerd: Peerd) -> None:
    for name in COMMANDS:
        for path in walk(load_command(name), (name,)):
            page = peerd(*path, "--help").out
            if not hasattr(command_at(path), "commands"):
                for option in ("--json", "--config", "--database", "--debug"):
                    assert option in page, path


def test_help_loads_neither_database_nor_config_and_textual_is_imported_by_top_alone() -> None:
    code = (
        "import sys; from peerd.cli.app import COMMANDS, app, load_command\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "heavy = ('sqlalchemy', 'pydantic', 'alembic', 'msgspec', 'peerd.cli.node.lifecycle')\n"
        "print([module for module in heavy if module in sys.modules])\n"
        "for name in COMMANDS: load_command(name)\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'textual'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-2:] == ["[]", "[]"]


def test_a_closed_pipe_is_no_error(peerd: Peerd) -> None:
    line = f"{sys.executable} -m peerd.cli --help | head -1; echo ${{PIPESTATUS[1]}}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert "Traceback" not in ran.stderr
    assert ran.stdout.splitlines()[-1] == "0"
    assert peerd("--version").out.startswith("peerd 0.")
