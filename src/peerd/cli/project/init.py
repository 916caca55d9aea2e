"""``peerd init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from rich.console import Group
from rich.text import Text
from typer import Argument

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import CommandError
from peerd.cli.output import sanitize
from peerd.config.loading import FILE_NAME
from peerd.config.template import TEMPLATE

app = new_app()

EXAMPLE_NAME: Final = "jobs.py"
EXAMPLE: Final = '''\
"""Background work of this project. peerd.toml names the queue: tasks = "jobs:hello"."""

import asyncio

from peerd import Context, Queue

hello = Queue("hello")


@hello.task
async def greet(ctx: Context, name: str, seconds: int = 5) -> dict[str, str]:
    """Take a while to say hello; watch it with `peerd tasks watch`."""
    for step in range(seconds):
        await ctx.progress(step / seconds, f"thinking about {name}")
        await asyncio.sleep(1)
    return {"greeting": f"Hello, {name}!"}
'''
GITIGNORE: Final = """\
# Files of peerd: the run directory with the log, and the embedded database.
.peerd/
*.sqlite
*.sqlite-shm
*.sqlite-wal
# Secret files.
*.password
*.secret
"""
WORKER_SECTION: Final = """\
[workers.hello]
tasks = "jobs:hello"
count = 4                     # tasks at once in each process

"""
NEXT_STEPS: Final = (
    ("peerd check", "check the configuration; if it names a database server, first: peerd migrate"),
    ("peerd up", "start this node; then, in another terminal:"),
    ("""peerd enqueue hello greet '{"name": "you"}'""", "enqueue a task"),
    ("peerd tasks watch", "watch it run"),
    ("peerd tasks list", "see its outcome"),
)


@command(app, of_this_machine=True)
def init(
    context: CommandContext,
    folder: Annotated[Path, Argument(help="The project's folder; it is created if needed.")] = Path(),
) -> None:
    """Create a project: write peerd.toml and an example module.

    A .gitignore is written if there is none. No file is overwritten.
    """
    before, manager, after = TEMPLATE.partition("[manager]")
    files = {folder / FILE_NAME: f"{before}{WORKER_SECTION}{manager}{after}", folder / EXAMPLE_NAME: EXAMPLE}
    if existing := [path for path in files if path.exists()]:
        verb = "exists" if len(existing) == 1 else "exist"
        message = f"{' and '.join(map(str, existing))} {verb} already; nothing was written"
        raise CommandError(message, "use another folder: peerd init FOLDER")
    if not (folder / ".gitignore").exists():
        files[folder / ".gitignore"] = GITIGNORE
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    context.print_result({"written": list(files)}, _render_next_steps(list(files), folder))


def _render_next_steps(written: list[Path], folder: Path) -> Group:
    steps = [(f"cd {folder}", ""), *NEXT_STEPS] if folder != Path() else NEXT_STEPS
    width = max(len(step) for step, _ in steps)
    return Group(
        *[Text.assemble(("written ", "green"), sanitize(str(path))) for path in written],
        Text("\nnext:"),
        *[Text.assemble("  ", (step.ljust(width), "bold"), "  ", (why, "bright_black")) for step, why in steps],
    )
