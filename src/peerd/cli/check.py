"""Say all that is wrong with the configuration, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.desk import Desk
from peerd.cli.failures import failure_of
from peerd.cli.imports import import_all
from peerd.cli.words import many, plain
from peerd.config import Problem, Settings, WebSettings, WorkerSettings
from peerd.config import check as check_configuration
from peerd.config.address import is_sqlite
from peerd.config.locate import line_of, lines_of_keys
from peerd.operate.client import Client
from peerd.store.engines import normalised
from peerd.store.migrate import look, newest
from peerd.store.revisions import Schema

app = new_app(__doc__)


@dataclass(slots=True)
class Findings:
    """What is wrong, what is doubtful, and what was found right."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    right: list[tuple[str, str]] = field(default_factory=list)


@command(app)
def check(desk: Desk) -> None:
    """Say all that is wrong with the configuration, and how to mend it.

    It reads peerd.toml and the environment, imports what the workers and web sections name, and asks the database.
    Exit status 1 when anything is wrong.
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
    """Look at the configuration; and, if that can be read, at the workers' code and at the database."""
    configuration = check_configuration(desk.config, desk.environment)
    found = Findings(list(configuration.problems), list(configuration.warnings))
    settings = configuration.settings
    if settings is None:
        return found
    kinds: list[WorkerSettings | WebSettings] = [*settings.workers.values(), *settings.web.values()]
    enabled = [one for one in kinds if one.enabled]
    processes = sum(one.processes for one in enabled)
    found.right.append(("configuration", f"{many(len(enabled), 'worker')} in {many(processes, 'process')}"))
    _examine_code(settings, found)
    _examine_database(settings, found)
    return found


def _examine_code(settings: Settings, found: Findings) -> None:
    lines = {} if settings.file is None else lines_of_keys(settings.file.read_text(encoding="utf-8"))
    for (section, name), answer in import_all(settings).items():
        key = _key_of_the_code(section, name, settings)
        if "error" in answer:
            remedy = _remedy(answer["error"], settings)
            problem = Problem(_shown(settings.file), line_of(key, lines), ".".join(key), answer["error"], remedy)
            found.problems.append(problem)
        else:
            found.right.append(_what_is_right(section, name, settings, answer))


def _key_of_the_code(section: str, name: str, settings: Settings) -> tuple[str, ...]:
    match section:
        case "agent":
            return section, name
        case "web":
            return section, name, "app"
        case _:
            return section, name, "worker" if settings.workers[name].worker else "tasks"


def _what_is_right(section: str, name: str, settings: Settings, answer: dict[str, Any]) -> tuple[str, str]:
    match section:
        case "agent":
            return "agent", f"sets up by {settings.agent.setup}"
        case "web":
            return f"web {name}", f"serves {settings.web[name].app}"
        case _:
            return f"worker {name}", _described(answer)


def _remedy(error: str, settings: Settings) -> str:
    if "ModuleNotFoundError" in error:
        return f"modules are looked for in {settings.project_directory} and where Python has its packages"
    return ""


def _described(answer: dict[str, Any]) -> str:
    parts = []
    if answer["queues"]:
        parts.append(f"takes from {', '.join(answer['queues'])}")
    if answer["handlers"]:
        parts.append(f"handles {', '.join(answer['handlers'])}")
    return "; ".join(parts) or "loops by itself"


def _examine_database(settings: Settings, found: Findings) -> None:
    url = settings.database.url
    if is_sqlite(url) and not Path(normalised(url).database or "").exists():
        found.right.append(("database", f"{settings.database.masked_url} will be made when it is first used"))
        return
    place = (settings.file, "database.url")
    try:
        with Client(url) as client:
            schema = look(client.database)
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        found.problems.append(Problem(_shown(place[0]), None, place[1], failure.message, failure.remedy))
        return
    if wrong := _wrong_with(schema, embedded=is_sqlite(url)):
        found.problems.append(Problem(_shown(place[0]), None, place[1], *wrong))
        return
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


def _shown(file: Path | None) -> str:
    if file is None:
        return "environment"
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def _for_people(found: Findings) -> RenderableType:
    return Group(
        *_lines(found.problems, "wrong", "bold red"),
        *_lines(found.warnings, "doubt", "yellow"),
        *[Text.assemble(("   ok  ", "green"), (f"{what}: ", "bold"), plain(words)) for what, words in found.right],
        Text(f"{many(len(found.problems), 'problem')}", "bold red") if found.problems else Text("all is well", "green"),
    )


def _lines(problems: Sequence[Problem], word: str, style: str) -> Iterator[Text]:
    for problem in problems:
        place = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
        sentence = ": ".join(plain(part) for part in (place, problem.key) if part)
        yield Text.assemble((f"{word:>5}  ", style), (sentence, "bold"), ": ", plain(problem.message))
        if problem.remedy:
            yield Text.assemble("       ", ("try: ", "bright_black"), plain(problem.remedy))
