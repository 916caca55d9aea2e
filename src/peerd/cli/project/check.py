"""Say all that is wrong with the configuration, and how to mend it."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import Desk
from peerd.cli.output.formatting import many, plain
from peerd.cli.project.check_code import examine_code
from peerd.cli.project.check_paths import examine_places
from peerd.cli.project.check_report import Findings
from peerd.config import Problem, Settings, WebSettings, WorkerSettings
from peerd.config import check as check_configuration
from peerd.config.address import is_sqlite
from peerd.operate.client import Client
from peerd.store.connection.engines import normalised
from peerd.store.schema.migrate import look, newest
from peerd.store.schema.revisions import Schema

app = new_app(__doc__)


@command(app)
def check(desk: Desk) -> None:
    """Say all that is wrong with the configuration, and how to mend it.

    It reads peerd.toml and the environment, imports the code that it names, tries to write where the node will, and
    asks the database; one mistake hides no other. Exit status 1 when anything is wrong, 0 with doubts only.
    """
    found = examine(desk)
    answer = {
        "ok": not found.problems,
        "problems": [asdict(problem) for problem in found.problems],
        "warnings": [asdict(warning) for warning in found.warnings],
        "right": [{"what": what, "words": words} for what, words in found.right],
    }
    desk.answer(answer, lambda: _for_people(found))
    if found.problems:
        raise typer.Exit(1)


def examine(desk: Desk) -> Findings:
    """Look at the configuration; and, as far as that can be read, at what it names: code, places, the database."""
    configuration = check_configuration(desk.config, desk.environment)
    settings = configuration.legible
    found = Findings(configuration, settings)
    if settings is None:
        return found
    if configuration.settings is not None:
        found.right.append(("configuration", _described(settings)))
    examine_code(settings, desk.environment, found)
    examine_places(settings, found)
    if not found.are_about("database"):
        _examine_database(desk, settings, found)
    found.sort()
    return found


def _described(settings: Settings) -> str:
    kinds: list[WorkerSettings | WebSettings] = [*settings.workers.values(), *settings.web.values()]
    enabled = [one for one in kinds if one.enabled]
    return f"{many(len(enabled), 'worker')} in {many(sum(one.processes for one in enabled), 'process')}"


def _examine_database(desk: Desk, settings: Settings, found: Findings) -> None:
    url = settings.database.url
    if is_sqlite(url) and not Path(normalised(url).database or "").exists():
        found.right.append(("database", f"{settings.database.masked_url} will be made when it is first used"))
        return
    place = ("database", "url")
    try:
        with Client(url) as client:
            schema = look(client.database)
    except Exception as error:
        failure = desk.failure_of(error)
        if failure is None:
            raise
        found.wrong(place, failure.message, failure.remedy)
        return
    if wrong := _wrong_with(schema, embedded=is_sqlite(url)):
        found.wrong(place, *wrong)
        return
    if is_sqlite(url) and (warning := readable_by_others(Path(normalised(url).database or ""))):
        found.doubtful(place, *warning)
    words = f"{settings.database.masked_url} at revision {newest() if schema is None else schema.revision}"
    if schema is not None and schema.is_newer:
        words += f", newer than this version's {newest()}, which may go on with it"
    found.right.append(("database", words))


def _wrong_with(schema: Schema | None, *, embedded: bool) -> tuple[str, str] | None:
    """What is wrong with the tables, and the remedy. An embedded database gets them by itself."""
    if schema is not None and schema.refuses:
        remedy = "install the version of peerd that migrated it"
        return f"the database is at revision {schema.revision}, which this version may not work with", remedy
    if embedded or (schema is not None and not schema.is_older):
        return None
    state = "has no tables of peerd yet" if schema is None else f"is at revision {schema.revision}, not {newest()}"
    return f"the database {state}", "run peerd migrate"


def readable_by_others(file: Path) -> tuple[str, str] | None:
    """What is wrong with a file that is nobody else's business, and the remedy; None where nothing is."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return None
    if not mode & 0o077:
        return None
    return f"{file} can be read by other users (mode {mode:03o})", f"chmod go-rwx {shlex.quote(str(file))}*"


def _for_people(found: Findings) -> RenderableType:
    return Group(
        *_lines(found.problems, "wrong", "bold red"),
        *_lines(found.warnings, "doubt", "yellow"),
        *[Text.assemble(("   ok  ", "green"), (f"{what}: ", "bold"), plain(words)) for what, words in found.right],
        _sum(found),
    )


def _sum(found: Findings) -> Text:
    doubts = many(len(found.warnings), "doubt")
    if found.problems:
        return Text(many(len(found.problems), "problem") + (f", {doubts}" if found.warnings else ""), "bold red")
    return Text.assemble(("all is well", "green"), (f", but for {doubts}" if found.warnings else "", "yellow"))


def _lines(problems: Sequence[Problem], word: str, style: str) -> Iterator[Text]:
    for problem in problems:
        place = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
        sentence = ": ".join(plain(part) for part in (place, problem.key) if part)
        yield Text.assemble((f"{word:>5}  ", style), (sentence, "bold"), ": ", plain(problem.message))
        if problem.remedy:
            yield Text.assemble("       ", ("try: ", "bright_black"), plain(problem.remedy))
