"""Loads settings from peerd.toml and the environment, or reports every problem in them."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from peerd.config.consistency import find_contradictions, find_incomplete_tables, find_warnings
from peerd.config.derived import derive_settings
from peerd.config.parsing import Mistake, SectionParser
from peerd.config.problems import ConfigError, Problem
from peerd.config.settings import Document, Settings
from peerd.config.source import (
    CONFIG_VARIABLE,
    ConfigSource,
    current_folder,
    find_unknown_variables,
    index_key_lines,
    merge_overrides,
    read_overrides,
)
from peerd.domain.units import format_size

FILE_NAME = "peerd.toml"
MAX_FILE_SIZE = 1024 * 1024
"""Bytes."""
MAX_PROBLEMS: Final = 100
"""Problems of values that are listed."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of `check`.

    Attributes:
        problems: everything that is wrong.
        warnings: settings that are allowed, and probably not meant.
        settings: only when there are no problems.
        partial_settings: the settings with defaults in place of wrong values, to be checked further; None where the
            file itself cannot be read. Nothing may be started with them.
    """

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    settings: Settings | None = None
    partial_settings: Settings | None = None


def load(path: Path | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """Load the settings of this project.

    Args:
        path: the peerd.toml; without it $PEERD_CONFIG, else the nearest in the current folder and those above it.
        environment: the PEERD_* variables.

    Raises:
        ConfigError: with every problem, each with its place and remedy.
    """
    found = check(path, environment)
    if found.settings is None:
        raise ConfigError(found.problems)
    return found.settings


def check(path: Path | None = None, environment: Mapping[str, str] = os.environ) -> Check:
    """Find all problems and warnings of a configuration. Arguments as for `load`."""
    try:
        source = _read_source(_find_file(path, environment), environment)
    except ConfigError as error:
        return Check(error.problems)
    parser = SectionParser()
    document = parser.parse_table(Document, source.values)
    source.invalid_keys = frozenset(parser.invalid_keys)
    settings, derived_problems = derive_settings(document, source)
    problems = [
        *find_incomplete_tables(source),
        *find_unknown_variables(environment),
        *_to_problems(parser.mistakes, source),
        *derived_problems,
        *find_contradictions(settings, source),
    ]
    warnings = [] if parser.mistakes else find_warnings(settings, source)  # they would be about defaults
    return Check(sorted(problems, key=_sort_key), warnings, None if problems else settings, settings)


def _find_file(path: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file to read; None when there is none and the environment names the database."""
    named = path or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    if named is not None:
        with suppress(RuntimeError):  # there is no such home folder: it is an ordinary name
            return named.expanduser()
        return named
    here = current_folder(environment)
    for folder in (here, *here.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    if environment.get("PEERD_DATABASE_URL"):
        return None
    remedy = "run 'peerd init' to write one, or name it with --config or PEERD_CONFIG"
    raise _unreadable(here / FILE_NAME, "no such file, here or in a folder above", remedy)


def _read_source(path: Path | None, environment: Mapping[str, str]) -> ConfigSource:
    overrides = read_overrides(environment)
    if path is None:
        return ConfigSource(
            current_folder(environment), None, merge_overrides({}, overrides), overridden=frozenset(overrides)
        )
    text = _read_text(path)
    try:
        values, lines = tomllib.loads(text), index_key_lines(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, text, error) from None
    except RecursionError:
        raise _unreadable(path, "holds values within values, too deep to be read") from None
    except ValueError:  # int() refuses it, and tomllib does not translate the error
        raise _unreadable(path, "holds a number that is too long to be read") from None
    file = current_folder(environment) / path
    return ConfigSource(file.parent, file, merge_overrides(values, overrides), lines, frozenset(overrides))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:  # it may be a pipe, or endless
            content = file.read(MAX_FILE_SIZE + 1)
        if len(content) > MAX_FILE_SIZE:
            remedy = "name a peerd.toml: one of this size can hold thousands of workers"
            raise _unreadable(path, f"is larger than {format_size(MAX_FILE_SIZE)}", remedy)
        return content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise _unreadable(path, "is not UTF-8 text") from None
    except (OSError, ValueError) as error:  # ValueError: the name holds a NUL
        message = (getattr(error, "strerror", None) or str(error)).lower()
        remedy = f"name the file with --config or {CONFIG_VARIABLE}"
        raise _unreadable(path, message, remedy) from None


def _unreadable(path: Path, message: str, remedy: str = "", line: int | None = None) -> ConfigError:
    return ConfigError([Problem(str(path), line, "", message, remedy)])


_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def _syntax_error(path: Path, text: str, error: tomllib.TOMLDecodeError) -> ConfigError:
    position = _POSITION.search(str(error))
    line = int(position[1]) if position and position[1] else len(text.splitlines())
    message = _POSITION.sub("", str(error))
    if message.startswith(("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate inline")):
        written = text.splitlines()[line - 1].partition("=")[0].strip()
        return _unreadable(path, f"{written} is given twice", "keep one of them", line)
    return _unreadable(path, f"this is not TOML: {message[:1].lower()}{message[1:]}", "", line)


def _to_problems(mistakes: list[Mistake], source: ConfigSource) -> list[Problem]:
    problems = [source.problem(*mistake) for mistake in mistakes[:MAX_PROBLEMS]]
    if len(mistakes) > MAX_PROBLEMS:
        problems.append(source.problem((), f"{len(mistakes) - MAX_PROBLEMS:,} more problems are not listed"))
    return problems


def _sort_key(problem: Problem) -> tuple[str, int, str]:
    return problem.file, problem.line or 0, problem.key
