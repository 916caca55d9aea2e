"""What `peerd up`, `start` and `restart` do before there is a node."""

from __future__ import annotations

from typing import Annotated

import typer

from peerd.cli.context import Desk
from peerd.cli.errors import Failure
from peerd.cli.project.code_imports import import_all
from peerd.runtime.process import exit_codes
from peerd.store.schema.migrate import migrate, require_newest

MigrateFirst = Annotated[
    bool, typer.Option("--migrate", help="Create or migrate the tables first.", show_default=False)
]


def prepare(desk: Desk, *, migrate_first: bool) -> None:
    """See that the tables are there, and hold no connection afterwards.

    Raises:
        PeerdError: they are not, or the database does not answer.
    """
    desk.makes_database = True
    database = desk.client.database
    if migrate_first:
        migrate(database)
    require_newest(database)
    database.close()


def require_code(desk: Desk) -> None:
    """See that what the processes of the node run can be imported, in a process of its own.

    Raises:
        Failure: it cannot; the first error is its message, the others are told below it.
    """
    answers = import_all(desk.settings, desk.environment, sections=("workers", "web"))
    wrong = [
        f"{section.removesuffix('s')} {name}: {answer['error']}"
        for (section, name), answer in answers.items()
        if "error" in answer
    ]
    if wrong:
        first, *others = wrong
        remedy = "mend it, and try again; nothing was stopped"
        raise Failure(f"cannot start: {first}", remedy, said=others, status=exit_codes.BOOT_FAILED, kind="DidNotStart")
