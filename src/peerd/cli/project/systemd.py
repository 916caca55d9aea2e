"""Print a systemd unit for this node, or write it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError
from peerd.cli.project.systemd_unit import SystemdUnit
from peerd.config import Settings
from peerd.config.reading.environment import setting_variables

app = new_app(__doc__)

URL_VARIABLE = "PEERD_DATABASE_URL"


@command(app)
def systemd(
    context: CommandContext,
    user: Annotated[
        bool,
        typer.Option("--user", help="A unit of your own (systemctl --user), not the system's.", show_default=False),
    ] = False,
    run_as: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Whose processes it has; default: the owner of the project's folder."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Write it to this file, or into this folder.", show_default=False
        ),
    ] = None,
) -> None:
    """Print a systemd unit for this node, or write it.

    systemd then knows when the node is ready, what it does, whether its loop goes round (watchdog), and reloads it.
    The run directory stays where the configuration has it, so that peerd status finds the node.
    """
    unit = _make_unit(context, None if user else run_as or _owner_of(context.settings.project_directory))
    if output is None:
        context.answer({"name": unit.name, "unit": str(unit)}, lambda: Text(str(unit).rstrip()))
        return
    path = _unit_path(unit, output)
    path.write_text(str(unit))
    control = "systemctl --user" if user else "systemctl"
    context.answer(
        {"name": unit.name, "file": str(path)},
        lambda: Group(
            Text.assemble(("wrote ", "green"), str(path)),
            Text(f"  {control} daemon-reload && {control} enable --now {path.name}"),
        ),
    )


def _unit_path(unit: SystemdUnit, output: Path) -> Path:
    """The file that was named, or the unit's own in the folder that was.

    Raises:
        Failure: it is a folder that is not there.
    """
    if output.is_dir():
        return output / unit.name
    if output.suffix != ".service":
        raise CommandError(f"there is no folder {output}", "make it; or name a file that ends in .service")
    if not output.parent.is_dir():
        raise CommandError(f"there is no folder {output.parent}", f"mkdir -p {output.parent}")
    return output


def _make_unit(context: CommandContext, user: str | None) -> SystemdUnit:
    settings = context.settings
    given = {name: context.environment[name] for name in sorted(setting_variables()) if name in context.environment}
    notes = []
    if given.pop(URL_VARIABLE, None):
        notes.append(
            f"{URL_VARIABLE} is set and was left out, because it may hold a password: use [database] "
            "password_file, or EnvironmentFile= in a drop-in."
        )
    return SystemdUnit(
        node=settings.node.name,
        project=settings.project_directory,
        program=_program(),
        options=["--config", str(settings.file)] if settings.file else [],
        grace=_longest_grace(settings),
        user=user,
        environment=given,
        notes=notes,
    )


def _program() -> list[str]:
    """The words that call this peerd, whatever the PATH of the service is."""
    beside = Path(sys.executable).with_name("peerd")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "peerd.cli"]


def _longest_grace(settings: Settings) -> float:
    graces = [kind.grace for kind in settings.workers.values()]
    graces += [kind.grace for kind in settings.web.values()]
    graces += [kind.grace for kind in settings.commands.values()]
    return max([settings.node.grace, *[grace for grace in graces if grace is not None]])


def _owner_of(folder: Path) -> str:
    """Who owns the project.

    Raises:
        Failure: nobody who has a name.
    """
    try:
        return folder.owner()
    except KeyError:
        uid = os.stat(folder).st_uid  # noqa: PTH116 - the number is all there is
        raise CommandError(f"the owner of {folder}, {uid}, has no name here", "name one with --as") from None
