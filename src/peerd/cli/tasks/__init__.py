"""The commands ``peerd tasks …``."""

from __future__ import annotations

from peerd.cli.command import command, new_app
from peerd.cli.tasks.actions import bury, cancel, change, delete, kick, move, retry, snooze
from peerd.cli.tasks.log_lines import logs
from peerd.cli.tasks.show import list_tasks, show, stack
from peerd.cli.tasks.watch import watch

app = new_app("List, show, watch, retry, cancel, bury, kick, snooze, delete, move and change tasks; read their stacks.")

command(app, "list")(list_tasks)
for function in (show, logs, stack, watch, retry, cancel, bury, kick, snooze, delete, move, change):
    command(app)(function)
