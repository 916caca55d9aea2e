"""Begin a project: write peerd.toml and an example module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Group
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import CommandError
from peerd.cli.output.formatting import sanitize
from peerd.config import FILE_NAME
from peerd.config.template import TEMPLATE

app = new_app(__doc__)

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
# What peerd writes here: the run directory with the log, and the embedded database.
.peerd/
*.sqlite
*.sqlite-shm
*.sqlite-wal
# Secrets that peerd.toml names.
*.password
*.secret
"""
WORKER_SECTION: Final = """\
[workers.hello]
tasks = "jobs:hello"
count = 4                     # tasks at once in each process

"""
NEXT_STEPS: Final = (
    ("peerd check", "say what is wrong, if anything"),
    ("peerd up", "start this node (Ctrl-C stops it); then, in another terminal:"),
    ("""peerd enqueue hello greet '{"name": "you"}'""", "enqueue a task"),
    ("peerd tasks watch", "watch it run"),
    ("peerd tasks list", "see what became of it"),
)


@command(app)
def init(
    context: CommandContext,
    folder: Annotated[Path, typer.Argument(help="The project's folder; it is made if need be.")] = Path(),
) -> None:
    """Begin a project: write peerd.toml and an example module.

    And a .gitignore, where there is none. Nothing that is there is overwritten.
    """
    files = {folder / FILE_NAME: settings_text(), folder / EXAMPLE_NAME: EXAMPLE}
    if there := [path for path in files if path.exists()]:
        raise CommandError(
            f"{' and '.join(map(str, there))} {'is' if len(there) == 1 else 'are'} there already; nothing was written",
            "begin in another folder: peerd init FOLDER",
        )
    ignore = folder / ".gitignore"
    if not ignore.exists():
        files[ignore] = GITIGNORE
    try:
        write(files)
    except OSError as error:
        raise CommandError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
    context.answer({"written": list(files)}, lambda: _render_next_steps(list(files), folder))


def settings_text() -> str:
    """The commented peerd.toml, with a worker for the example."""
    before, manager, after = TEMPLATE.partition("[manager]")
    return f"{before}{WORKER_SECTION}{manager}{after}"


def write(files: dict[Path, str]) -> None:
    """Write files that are not there yet."""
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)


def _render_next_steps(written: list[Path], folder: Path) -> Group:
    steps = [(f"cd {folder}", ""), *NEXT_STEPS] if folder != Path() else NEXT_STEPS
    width = max(len(step) for step, _ in steps)
    return Group(
        *[Text.assemble(("written ", "green"), sanitize(str(path))) for path in written],
        Text("\nnext:"),
        *[Text.assemble("  ", (step.ljust(width), "bold"), "  ", (why, "bright_black")) for step, why in steps],
    )
