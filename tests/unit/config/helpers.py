"""Read a configuration file for a test, with only the environment variables that the test sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from peerd.config import Check, check

EMPTY: Mapping[str, str] = {}
Write = Callable[[str], Path]


def checked(path: Path, environment: Mapping[str, str] = EMPTY) -> Check:
    return check(path, environment)


def problems(path: Path, environment: Mapping[str, str] = EMPTY) -> list[str]:
    return [str(problem) for problem in checked(path, environment).problems]
