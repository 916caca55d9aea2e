"""List, show, watch, retry, cancel, delete and move tasks."""

from __future__ import annotations

from peerd.cli.command import command, new_app
from peerd.cli.tasks.actions import cancel, delete, move, retry
from peerd.cli.tasks.listing import list_tasks
from peerd.cli.tasks.show import show
from peerd.cli.tasks.watching import watch

app = new_app(__doc__, no_args_is_help=True)

command(app, "list")(list_tasks)
command(app)(show)
command(app)(watch)
command(app)(retry)
command(app)(cancel)
command(app)(delete)
command(app)(move)
