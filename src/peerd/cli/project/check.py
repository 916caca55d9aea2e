"""``peerd check``: the configuration, the user code, the files and the database that it names."""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import to_command_error
from peerd.cli.output import pluralize, sanitize
from peerd.cli.project.code_imports import SectionName, import_project_code
from peerd.config import Settings
from peerd.config import check as check_configuration
from peerd.config.address import is_sqlite
from peerd.config.loading import Check
from peerd.config.problems import KeyPath, Problem, suggest_similar
from peerd.config.schedules import applies_to_node
from peerd.config.settings import ServingSettings, WorkerSettings
from peerd.config.source import display_path, find_line, index_key_lines
from peerd.operate.client import Client
from peerd.store.connection.database import with_driver
from peerd.store.schema.migrate import SchemaVersion, find_schema_version, newest

# ---------------------------------------------------------------- the report


class ConfigReport:
    """Problems, warnings, and checks that passed.

    Args:
        configuration: the findings of the configuration's reader.
        settings: the settings that are checked.
    """

    def __init__(self, configuration: Check, settings: Settings | None) -> None:
        self.problems = list(configuration.problems)
        self.warnings = list(configuration.warnings)
        self.passed: list[tuple[str, str]] = []
        self._file = None if settings is None else settings.file
        self._lines = {} if self._file is None else index_key_lines(self._file.read_text(encoding="utf-8"))

    def add_problem(self, key_path: KeyPath, message: str, remedy: str = "") -> None:
        """Add a problem of a key."""
        self.problems.append(self._problem(key_path, message, remedy))

    def add_warning(self, key_path: KeyPath, message: str, remedy: str = "") -> None:
        """Add a value of a key that is allowed, but probably a mistake."""
        self.warnings.append(self._problem(key_path, message, remedy))

    def has_problem_in(self, section: str) -> bool:
        """Whether a section has a problem, in the file or in the environment."""
        names = (f"{section}.", f"PEERD_{section}_".upper())
        return any(f"{problem.key}.".startswith(names) for problem in self.problems)

    def sort(self) -> None:
        """Sort them in the order of the file."""
        for problems in (self.problems, self.warnings):
            problems.sort(key=lambda problem: (problem.file, problem.line or 0, problem.key))

    def _problem(self, key_path: KeyPath, message: str, remedy: str) -> Problem:
        file = "environment" if self._file is None else display_path(self._file)
        return Problem(file, find_line(key_path, self._lines), ".".join(key_path), message, remedy)


# ---------------------------------------------------------------- user code


ImportResults = Mapping[SectionName, Mapping[str, Any]]
ServedQueues = dict[str, set[str] | None]
"""Queues, each with its handlers; None if a worker takes any task."""


def check_project_code(settings: Settings, environment: Mapping[str, str], report: ConfigReport) -> None:
    """Import the code, and check that the tasks of schedules have handlers."""
    results = import_project_code(settings, environment)
    for (section, name), result in results.items():
        key_path, passed = _describe_code(section, name, settings, result)
        if "error" in result:
            error = result["error"]
            remedy = f"modules are searched in {settings.project_directory} and in Python's packages"
            report.add_problem(key_path, error, remedy if "ModuleNotFoundError" in error else "")
        else:
            report.passed.append(passed)
    _check_tasks_of_schedules(settings, results, report)


def _check_tasks_of_schedules(settings: Settings, results: ImportResults, report: ConfigReport) -> None:
    queues_served = _served_queues(results)
    complete = not any(section == "workers" and "error" in result for (section, _), result in results.items())
    for name, schedule in settings.schedules.items():
        queue, task = schedule.queue, schedule.task or ""
        if queue is None or not applies_to_node(schedule, settings):
            continue
        if queue not in queues_served:
            if complete:
                message = f"no worker of this configuration serves the queue {queue}; its tasks wait for another node"
                report.add_warning(("schedules", name, "queue"), message, suggest_similar(queue, queues_served))
            continue
        handlers = queues_served[queue]
        if handlers is not None and task not in handlers:
            message = f"queue {queue} has no handler {task!r}; there are: {', '.join(sorted(handlers)) or 'none'}"
            key = "queue" if schedule.task is None else "task"
            report.add_problem(("schedules", name, key), message, suggest_similar(task, handlers))


def _served_queues(results: ImportResults) -> ServedQueues:
    """The queues of all workers that could be imported."""
    queues_served: ServedQueues = {}
    for result in results.values():
        for queue, handlers in result.get("queues", {}).items():
            others = queues_served.get(queue, set())
            queues_served[queue] = None if handlers is None or others is None else others | set(handlers)
    return queues_served


def _describe_code(
    section: str, name: str, settings: Settings, result: Mapping[str, Any]
) -> tuple[KeyPath, tuple[str, str]]:
    """The key that names the code, and in words what it is for."""
    match section:
        case "agent":
            return (section, name), ("agent", f"is set up by {settings.agent.setup}")
        case "errors":
            return (section, name), ("errors", f"are given to {settings.errors.hook}")
        case "web":
            return (section, name, "app"), (f"web {name}", f"serves {settings.web[name].app}")
        case "schedules":
            return (section, name, "run"), (f"schedule {name}", f"runs {settings.schedules[name].run}")
        case _:
            key = "worker" if settings.workers[name].worker else "tasks"
            return (section, name, key), (f"worker {name}", _describe_worker(result.get("queues", {})))


def _describe_worker(queues: Mapping[str, list[str] | None]) -> str:
    handlers = [handler for named in queues.values() for handler in named or ()]
    parts = [f"takes from {', '.join(queues)}"] if queues else []
    parts += [f"handles {', '.join(handlers)}"] if handlers else []
    return "; ".join(parts) or "runs its own loop"


# ---------------------------------------------------------------- files


def check_writable_paths(settings: Settings, report: ConfigReport) -> None:
    """Check the run directory, the log file and the embedded database."""
    problems: list[tuple[KeyPath, str]] = [(("node", "run_directory"), _folder_problem(settings.node.run_directory))]
    if settings.logging.file is not None:
        problems.append((("logging", "file"), _file_problem(settings.logging.file)))
    if is_sqlite(settings.database.url) and not report.has_problem_in("database"):
        file = Path(with_driver(settings.database.url).database or "")
        problems.append((("database", "url"), _file_problem(file, makes_folders=False)))
    for key_path, problem in problems:
        if problem:
            report.add_problem(key_path, problem, "choose a path that the user of the node may write to")


def check_privacy(file: Path, key_path: KeyPath, report: ConfigReport) -> None:
    """Warn of a database file that other users can read."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return
    if mode & 0o077:
        remedy = f"chmod go-rwx {shlex.quote(str(file))}*"
        report.add_warning(key_path, f"{file} can be read by other users (mode {mode:03o})", remedy)


def _file_problem(path: Path, *, makes_folders: bool = True) -> str:
    """Why a file cannot be written or created; empty if it can."""
    try:
        if path.exists():
            # It is not opened: closing it would release the locks of this process's SQLite connections on it.
            writable = path.is_file() and os.access(path, os.W_OK, effective_ids=True)
            return "" if writable else f"{path} cannot be written"
    except OSError as error:
        return f"{path} cannot be written: {_error_text(error)}"
    if not makes_folders and not path.parent.is_dir():
        return f"{path} cannot be created: there is no folder {path.parent}"
    return _folder_problem(path.parent, path)


def _folder_problem(folder: Path, path: Path | None = None) -> str:
    """Why nothing can be created in a folder, which may not exist yet; empty if it can."""
    existing = next(one for one in (folder, *folder.parents) if _exists(one))
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"{path or folder} cannot be created: {existing}: {_error_text(error)}"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # it exists, but may not be read
        return True


def _error_text(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


# ---------------------------------------------------------------- the command


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
            used = (("a token", gateway.token), ("TLS", gateway.tls_certificate))
            access = [name for name, value in used if value]
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
