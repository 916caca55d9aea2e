"""``peerd check``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.command import command, new_app
from peerd.cli.context import CommandContext
from peerd.cli.errors import to_command_error
from peerd.cli.output.formatting import pluralize, sanitize
from peerd.cli.project.check_code import check_project_code
from peerd.cli.project.check_files import check_privacy, check_writable_paths
from peerd.cli.project.check_report import ConfigReport
from peerd.config import Settings
from peerd.config import check as check_configuration
from peerd.config.address import is_sqlite
from peerd.config.problems import Problem
from peerd.config.settings import ServingSettings, WorkerSettings
from peerd.operate.client import Client
from peerd.store.connection.database import with_driver
from peerd.store.schema.migrate import SchemaVersion, find_schema_version, newest

app = new_app()


@command(app, of_this_machine=True)
def check(context: CommandContext) -> None:
    """Check the configuration, and what it names; list every problem with its remedy.

    It reads peerd.toml and the environment, imports the code that they name, tests whether the node's files can be
    written, and queries the database. Exit status 1 if there is a problem, 0 if there are only warnings.
    """
    report = _run_checks(context)
    answer = {
        "ok": not report.problems,
        "problems": [asdict(problem) for problem in report.problems],
        "warnings": [asdict(warning) for warning in report.warnings],
        "right": [{"what": subject, "words": words} for subject, words in report.passed],
    }
    context.print_result(answer, _render_report(report))
    if report.problems:
        raise typer.Exit(1)


def _run_checks(context: CommandContext) -> ConfigReport:
    """Check the configuration and, as far as it is readable, the code, the files and the database that it names."""
    configuration = check_configuration(context.config, context.environment)
    settings = configuration.partial_settings
    report = ConfigReport(configuration, settings)
    if settings is None:
        return report
    if configuration.settings is not None:
        kinds: list[WorkerSettings | ServingSettings]
        kinds = [*settings.workers.values(), *settings.web.values(), *settings.gateway.values()]
        enabled = [kind for kind in kinds if kind.enabled]
        processes = pluralize(sum(kind.processes for kind in enabled), "process")
        report.passed.append(("configuration", f"{pluralize(len(enabled), 'worker')} in {processes}"))
        report.passed += _describe_gateways(settings)
    check_project_code(settings, context.environment, report)
    check_writable_paths(settings, report)
    if not report.has_problem_in("database"):
        _check_database(settings, report)
    report.sort()
    return report


def _describe_gateways(settings: Settings) -> Iterator[tuple[str, str]]:
    for name, gateway in settings.gateway.items():
        if gateway.enabled:
            access = [
                *(["a token"] if gateway.token else []),
                *(["TLS"] if gateway.tls_certificate else []),
            ]
            how = f", with {' and '.join(access)}" if access else ""
            words = f"serves {' and '.join(gateway.protocols)} on {', '.join(gateway.bind)}{how}"
            yield f"gateway {name}", words


def _check_database(settings: Settings, report: ConfigReport) -> None:
    url = settings.database.url
    key_path = ("database", "url")
    file = Path(with_driver(url).database or "") if is_sqlite(url) else None
    if file is not None and not file.exists():
        report.passed.append(("database", f"{settings.database.masked_url} is created at its first use"))
        return
    try:
        with Client(url) as client:
            schema = find_schema_version(client.database)
    except Exception as error:
        failure = to_command_error(error)
        if failure is None:
            raise
        report.add_problem(key_path, failure.message, failure.remedy)
        return
    if problem := _schema_problem(schema, embedded=file is not None):
        report.add_problem(key_path, *problem)
        return
    if file is not None:
        check_privacy(file, key_path, report)
    state = f"{settings.database.masked_url} at revision {newest() if schema is None else schema.revision}"
    if schema is not None and schema.is_newer:
        state += f", newer than this version's {newest()}, but compatible"
    report.passed.append(("database", state))


def _schema_problem(schema: SchemaVersion | None, *, embedded: bool) -> tuple[str, str] | None:
    """A problem and its remedy. An embedded database is created and migrated by itself."""
    if schema is not None and schema.is_incompatible:
        message = f"the database is at revision {schema.revision}, with which this version cannot work"
        return message, "install the version of peerd that migrated it"
    if embedded or (schema is not None and not schema.is_older):
        return None
    state = "has no tables of peerd yet" if schema is None else f"is at revision {schema.revision}, not {newest()}"
    return f"the database {state}", "run peerd migrate"


def _render_report(report: ConfigReport) -> RenderableType:
    return Group(
        *_problem_lines(report.problems, "error", "bold red"),
        *_problem_lines(report.warnings, "warn", "yellow"),
        *[Text.assemble(("   ok  ", "green"), (f"{name}: ", "bold"), sanitize(words)) for name, words in report.passed],
        _summary(report),
    )


def _summary(report: ConfigReport) -> Text:
    warnings = pluralize(len(report.warnings), "warning")
    if report.problems:
        return Text(
            pluralize(len(report.problems), "problem") + (f", {warnings}" if report.warnings else ""), "bold red"
        )
    return Text.assemble(("no problems", "green"), (f", {warnings}" if report.warnings else "", "yellow"))


def _problem_lines(problems: Sequence[Problem], level: str, style: str) -> Iterator[Text]:
    for problem in problems:
        place = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
        subject = ": ".join(sanitize(part) for part in (place, problem.key) if part)
        yield Text.assemble((f"{level:>5}  ", style), (subject, "bold"), ": ", sanitize(problem.message))
        if problem.remedy:
            yield Text.assemble("       ", ("try: ", "bright_black"), sanitize(problem.remedy))
