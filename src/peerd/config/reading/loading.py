"""peerd.toml and the environment become settings, or the list of all that is wrong with them."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peerd.config.problems import ConfigError, Problem
from peerd.config.reading.consistency import find_contradictions, find_warnings
from peerd.config.reading.derived import derive_settings
from peerd.config.reading.environment import CONFIG_VARIABLE, find_unknown_variables, read_overrides
from peerd.config.reading.source import ConfigSource
from peerd.config.reading.validation import validate
from peerd.config.settings import Settings
from peerd.domain.size import format_size

FILE_NAME = "peerd.toml"
MAX_FILE_SIZE = 1024 * 1024
"""Bytes."""
KIND_SECTIONS = ("workers", "commands", "web")
"""Sections whose tables are kinds of processes."""


@dataclass(frozen=True, slots=True)
class Check:
    """What `check` found.

    Attributes:
        problems: all that is wrong.
        warnings: what is allowed, and probably not meant.
        settings: only when there are no problems.
        legible: the settings with defaults in the place of wrong values, to look for more mistakes in; None where the
            file itself cannot be read. Nothing may be started with them.
    """

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    settings: Settings | None = None
    partial_settings: Settings | None = None


def load(path: Path | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this project.

    Args:
        path: the peerd.toml; without it $PEERD_CONFIG, else the nearest in the present folder and those above it.
        environment: where PEERD_* variables are looked for.

    Raises:
        ConfigError: with every problem, each with its place and remedy.
    """
    found = check(path, environment)
    if found.settings is None:
        raise ConfigError(found.problems)
    return found.settings


def check(path: Path | None = None, environment: Mapping[str, str] = os.environ) -> Check:
    """Everything that is wrong with a configuration, and what is probably not meant. Arguments as for `load`."""
    try:
        source = _read_source(_find_file(path, environment), environment)
    except ConfigError as error:
        return Check(error.problems)
    document, wrong_values, source.invalid_keys = validate(source)
    problems = [*_shape_problems(source), *find_unknown_variables(environment), *wrong_values]
    if document is None:
        return Check(sorted(problems, key=_sort_key))
    settings, settling_problems = derive_settings(document, source)
    problems += [*settling_problems, *find_contradictions(settings, source)]
    warnings = [] if wrong_values else find_warnings(settings, source)  # they would be of defaults
    return Check(sorted(problems, key=_sort_key), warnings, None if problems else settings, settings)


def _find_file(path: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file to read; None when there is none, and the environment names the database."""
    named = path or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    if named is not None:
        with suppress(RuntimeError):  # nobody has this home folder: it is a name like any other
            return named.expanduser()
        return named
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    if environment.get("PEERD_DATABASE_URL"):
        return None
    remedy = "run 'peerd init' to write one, or name it with --config or PEERD_CONFIG"
    raise ConfigError([Problem(str(here / FILE_NAME), None, "", "no such file, here or in a folder above", remedy)])


def _read_source(path: Path | None, environment: Mapping[str, str]) -> ConfigSource:
    if path is None:
        return ConfigSource.from_environment(read_overrides(environment))
    text = _read_text(path)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_syntax_problem(path, text, error)]) from None
    except RecursionError:
        raise ConfigError([Problem(str(path), None, "", "holds values within values, too deep to be read")]) from None
    except ValueError:  # of the standard library, whose parser does not word it
        raise ConfigError([Problem(str(path), None, "", "holds a number that is too long to be read")]) from None
    return ConfigSource.from_file(path, text, values, read_overrides(environment))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:  # which may be a pipe, or endless
            content = file.read(MAX_FILE_SIZE + 1)
        if len(content) > MAX_FILE_SIZE:
            remedy = "it has room for some hundred workers; what is this?"
            raise ConfigError([Problem(str(path), None, "", f"is larger than {format_size(MAX_FILE_SIZE)}", remedy)])
        return content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ConfigError([Problem(str(path), None, "", "is not UTF-8 text")]) from None
    except (OSError, ValueError) as error:  # a name with a NUL is no name
        message = (getattr(error, "strerror", None) or str(error)).lower()
        remedy = f"name the file with --config or {CONFIG_VARIABLE}"
        raise ConfigError([Problem(str(path), None, "", message, remedy)]) from None


_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def _syntax_problem(path: Path, text: str, error: tomllib.TOMLDecodeError) -> Problem:
    position = _POSITION.search(str(error))
    line = int(position[1]) if position and position[1] else len(text.splitlines())
    message = _POSITION.sub("", str(error))
    if message.startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate inline")):
        written = text.splitlines()[line - 1].partition("=")[0].strip()
        return Problem(str(path), line, "", f"{written} is given twice", "keep one of them")
    return Problem(str(path), line, "", f"this is not TOML: {message[:1].lower()}{message[1:]}")


def _shape_problems(source: ConfigSource) -> Iterator[Problem]:
    """What must hold between the keys of a worker, said even when one of them is wrong by itself."""
    yield from _name_problems(source)
    for name, worker in _tables_in(source, "workers"):
        key_path = ("workers", name)
        if "tasks" in worker and "worker" in worker:
            second = max("tasks", "worker", key=lambda key: source.line((*key_path, key)) or 0)
            yield source.problem((*key_path, second), "a worker has tasks or worker, not both", "keep one of them")
        if "tasks" not in worker and "worker" not in worker:
            remedy = 'name a queue, tasks = "studio.jobs:video", or a class, worker = "studio.jobs:Cleanup"'
            yield source.problem(key_path, "has nothing to run", remedy)

    for name, hook in _tables_in(source, "alerts"):
        channels = [
            channel for channel in ("webhook", "mail", "command", "log") if hook.get(channel) not in (None, False)
        ]
        if len(channels) != 1:
            given = f"has {' and '.join(channels)}" if channels else "has no way out"
            remedy = "give exactly one of webhook, mail, command and log = true"
            yield source.problem(("alerts", name), given, remedy)


def _name_problems(source: ConfigSource) -> Iterator[Problem]:
    """A kind of process is known by its name alone, in status and to reload, so no two may share one."""
    taken: dict[str, str] = {}
    for section in KIND_SECTIONS:
        for name, _ in _tables_in(source, section):
            if name in {"agent", "manager", "master", "watcher"}:
                yield source.problem((section, name), "is the name of a process of peerd's own", "choose another name")
            if name in taken:
                yield source.problem((section, name), f"[{taken[name]}.{name}] has this name", "choose another name")
            taken.setdefault(name, section)


def _tables_in(source: ConfigSource, section: str) -> Iterator[tuple[str, dict[str, Any]]]:
    tables: Any = source.values.get(section)
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if isinstance(table, dict):
            yield name, table


def _sort_key(problem: Problem) -> tuple[str, int, str]:
    return problem.file, problem.line or 0, problem.key
