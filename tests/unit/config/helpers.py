"""Reading a file as the tests of the configuration do: in the environment that they say and in no other."""

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
