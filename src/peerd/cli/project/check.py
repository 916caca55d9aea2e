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
from peerd.cli.context import CommandContext
from peerd.cli.output.formatting import pluralize, sanitize
from peerd.cli.project.check_code import check_project_code
from peerd.cli.project.check_paths import check_writable_paths
from peerd.cli.project.check_report import ConfigReport
from peerd.config import Problem, Settings, WebSettings, WorkerSettings
from peerd.config import check as check_configuration
from peerd.config.address import is_sqlite
from peerd.operate.client import Client
from peerd.store.connection.engines import with_driver
from peerd.store.schema.migrate import find_schema_version, newest
from peerd.store.schema.revisions import SchemaVersion

app = new_app(__doc__)


@command(app)
def check(context: CommandContext) -> None:
    """Say all that is wrong with the configuration, and how to mend it.

    It reads peerd.toml and the environment, imports the code that it names, tries to write where the node will, and
    asks the database; one mistake hides no other. Exit status 1 when anything is wrong, 0 with doubts only.
    """
    report = run_checks(context)
    answer = {
        "ok": not report.problems,
        "problems": [asdict(problem) for problem in report.problems],
        "warnings": [asdict(warning) for warning in report.warnings],
        "right": [{"what": what, "words": words} for what, words in report.passed],
    }
    context.answer(answer, lambda: _render_report(report))
    if report.problems:
        raise typer.Exit(1)


def run_checks(context: CommandContext) -> ConfigReport:
    """Look at the configuration; and, as far as that can be read, at what it names: code, places, the database."""
    configuration = check_configuration(context.config, context.environment)
    settings = configuration.partial_settings
    report = ConfigReport(configuration, settings)
    if settings is None:
        return report
    if configuration.settings is not None:
        report.passed.append(("configuration", _describe_kinds(settings)))
    check_project_code(settings, context.environment, report)
    check_writable_paths(settings, report)
    if not report.has_problem_in("database"):
        _check_database(context, settings, report)
    report.sort()
    return report


def _describe_kinds(settings: Settings) -> str:
    kinds: list[WorkerSettings | WebSettings] = [*settings.workers.values(), *settings.web.values()]
    enabled = [one for one in kinds if one.enabled]
    return f"{pluralize(len(enabled), 'worker')} in {pluralize(sum(one.processes for one in enabled), 'process')}"


def _check_database(context: CommandContext, settings: Settings, report: ConfigReport) -> None:
    url = settings.database.url
    if is_sqlite(url) and not Path(with_driver(url).database or "").exists():
        report.passed.append(("database", f"{settings.database.masked_url} will be made when it is first used"))
        return
    key_path = ("database", "url")
    try:
        with Client(url) as client:
            schema = find_schema_version(client.database)
    except Exception as error:
        failure = context.to_command_error(error)
        if failure is None:
            raise
        report.add_problem(key_path, failure.message, failure.remedy)
        return
    if add_problem := _schema_problem(schema, embedded=is_sqlite(url)):
        report.add_problem(key_path, *add_problem)
        return
    if is_sqlite(url) and (warning := readable_by_others(Path(with_driver(url).database or ""))):
        report.add_warning(key_path, *warning)
    words = f"{settings.database.masked_url} at revision {newest() if schema is None else schema.revision}"
    if schema is not None and schema.is_newer:
        words += f", newer than this version's {newest()}, which may go on with it"
    report.passed.append(("database", words))


def _schema_problem(schema: SchemaVersion | None, *, embedded: bool) -> tuple[str, str] | None:
    """What is wrong with the tables, and the remedy. An embedded database gets them by itself."""
    if schema is not None and schema.is_incompatible:
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


def _render_report(report: ConfigReport) -> RenderableType:
    return Group(
        *_problem_lines(report.problems, "wrong", "bold red"),
        *_problem_lines(report.warnings, "doubt", "yellow"),
        *[Text.assemble(("   ok  ", "green"), (f"{what}: ", "bold"), sanitize(words)) for what, words in report.passed],
        _summary(report),
    )


def _summary(report: ConfigReport) -> Text:
    doubts = pluralize(len(report.warnings), "doubt")
    if report.problems:
        return Text(pluralize(len(report.problems), "problem") + (f", {doubts}" if report.warnings else ""), "bold red")
    return Text.assemble(("all is well", "green"), (f", but for {doubts}" if report.warnings else "", "yellow"))


def _problem_lines(problems: Sequence[Problem], word: str, style: str) -> Iterator[Text]:
    for problem in problems:
        key_path = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
        sentence = ": ".join(sanitize(part) for part in (key_path, problem.key) if part)
        yield Text.assemble((f"{word:>5}  ", style), (sentence, "bold"), ": ", sanitize(problem.message))
        if problem.remedy:
            yield Text.assemble("       ", ("try: ", "bright_black"), sanitize(problem.remedy))
