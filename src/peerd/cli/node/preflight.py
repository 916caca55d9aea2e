"""What `peerd up`, `start` and `restart` do before there is a node."""

from __future__ import annotations

from typing import Annotated

import typer

from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError
from peerd.cli.project.code_imports import import_project_code
from peerd.runtime.process import exit_codes
from peerd.store.schema.migrate import migrate, require_current_schema

MigrateOption = Annotated[
    bool, typer.Option("--migrate", help="Create or migrate the tables first.", show_default=False)
]


def prepare_database(context: CommandContext, *, migrate_first: bool) -> None:
    """See that the tables are there, and hold no connection afterwards.

    Raises:
        PeerdError: they are not, or the database does not answer.
    """
    context.may_create_database = True
    database = context.client.database
    if migrate_first:
        migrate(database)
    require_current_schema(database)
    database.close()


def require_importable_code(context: CommandContext) -> None:
    """See that what the processes of the node run can be imported, in a process of its own.

    Raises:
        Failure: it cannot; the first error is its message, the others are told below it.
    """
    answers = import_project_code(context.settings, context.environment, sections=("workers", "web"))
    wrong = [
        f"{section.removesuffix('s')} {name}: {answer['error']}"
        for (section, name), answer in answers.items()
        if "error" in answer
    ]
    if wrong:
        first, *others = wrong
        remedy = "mend it, and try again; nothing was stopped"
        raise CommandError(
            f"cannot start: {first}", remedy, said=others, status=exit_codes.BOOT_FAILED, kind="NodeStartError"
        )
