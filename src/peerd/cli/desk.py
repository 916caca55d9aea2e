"""What every command has: its settings, a client, and a way to answer people and programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import typer
from rich.console import Console, RenderableType

from peerd.cli.failures import Failure, failure_of
from peerd.config import Settings, load
from peerd.config.address import is_sqlite, locate_sqlite_file
from peerd.config.environment import CONFIG_VARIABLE
from peerd.operate.client import Client

WIDTH_OF_A_PIPE = 160
"""Columns for tables that no terminal shows."""


class Desk:
    """One call of the command line.

    Answers go to stdout: for people as they read best, or (``--json``) as one JSON document. Errors go to stderr.

    Args:
        config: the peerd.toml that was named.
        database: the address that was named instead of the configured one.
        as_json: whether a program reads.
        debug: whether errors come with their traceback.
    """

    def __init__(self, config: Path | None, database: str | None, *, as_json: bool, debug: bool) -> None:
        self.config = config
        self.as_json = as_json
        self.debug = debug
        self._database = database
        self._afterwards = ExitStack()
        self.out = console()
        self.err = console(stderr=True)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment, with the file and the database's address that were named on the command line.

        A node's processes inherit it, so that a user's code finds the same settings as the node.
        """
        given = {**os.environ}
        if self.config is not None:
            given[CONFIG_VARIABLE] = str(self.config.absolute())
        if self._database is not None:
            given["PEERD_DATABASE_URL"] = self._named_database(self._database)
        return given

    def _named_database(self, named: str) -> str:
        if is_sqlite(named):
            try:
                named = locate_sqlite_file(named, Path.cwd())
            except ValueError as error:
                raise Failure(f"--database: {error}") from None
        return named

    @cached_property
    def settings(self) -> Settings:
        """The settings of this project.

        Raises:
            ConfigError: with every problem.
        """
        return load(self.config, self.environment)

    @cached_property
    def client(self) -> Client:
        """A client for the configured database; it is closed after the command."""
        return self._afterwards.enter_context(Client(self.settings.database.url, secret=self.settings.cluster.secret))

    def answer(self, value: object, *people: RenderableType | Callable[[], RenderableType]) -> None:
        """The command's answer: the value for programs; for people these renderables, or what makes them."""
        if self.as_json:
            self.line(value)
            return
        for one in people:
            self.out.print(one() if callable(one) else one)

    def line(self, value: object) -> None:
        """A JSON document on a line of stdout."""
        typer.echo(json_of(value))

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what was opened; an error becomes one clear line, and an exit status."""
        self._afterwards.close()
        if isinstance(error, Exception) and not self.debug and (failure := failure_of(error)) is not None:
            self.fail(failure)
            raise typer.Exit(failure.status) from error

    def fail(self, failure: Failure) -> None:
        """Say what went wrong."""
        if self.as_json:
            typer.echo(json_of({"error": failure.as_json()}), err=True)
        else:
            self.err.print(failure.for_people(), soft_wrap=True)


def console(*, stderr: bool = False) -> Console:
    """A console that paints what we say and nothing else; wide where it is no terminal."""
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = WIDTH_OF_A_PIPE
    return made


def json_of(value: object) -> str:
    """A value as JSON: structs as objects, times in UTC as ISO 8601, bytes as base64, paths as text."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except UnicodeEncodeError:  # an argument that is no text is quoted in it
        return json.dumps(msgspec.to_builtins(value, enc_hook=_plain))


def _plain(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case datetime():
            return value.isoformat()
        case _ if hasattr(value, "model_dump"):
            return value.model_dump(mode="json")
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")
