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
from rich.text import Text
from sqlalchemy.engine import make_url

from peerd.cli.errors import CHECK_CONNECTION, EXIT_USAGE, CommandError, to_command_error
from peerd.cli.output.formatting import sanitize
from peerd.config import Settings, load
from peerd.config.address import is_sqlite, make_sqlite_path_absolute, normalise_url
from peerd.config.reading.environment import CONFIG_VARIABLE
from peerd.operate.client import Client
from peerd.runtime.observability.escaping import UNSAFE_CHARACTERS

NON_TTY_WIDTH = 160
"""Columns for tables that no terminal shows."""


class CommandContext:
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
        self.may_create_database = False
        """Whether an embedded database that the command line names is made where it is not there."""
        self._database = database
        self._exit_stack = ExitStack()
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
            given["PEERD_DATABASE_URL"] = self._database_url(self._database)
        return given

    def _database_url(self, named: str) -> str:
        try:
            normalise_url(named)
            return make_sqlite_path_absolute(named, Path.cwd())
        except ValueError as error:
            raise CommandError(f"--database: {error}", status=EXIT_USAGE) from None

    @cached_property
    def settings(self) -> Settings:
        """The settings of this project.

        Raises:
            ConfigError: with every problem.
        """
        return load(self.config, self.environment)

    @cached_property
    def client(self) -> Client:
        """A client for the configured database; it is closed after the command.

        Raises:
            Failure: the command line names a file that is not there, and the command makes none.
        """
        if self._database is not None and not self.may_create_database:
            self._require_file(self.settings.database.url)
        return self._exit_stack.enter_context(Client(self.settings.database.url, secret=self.settings.cluster.secret))

    def _require_file(self, url: str) -> None:
        file = Path(make_url(url).database or "") if is_sqlite(url) else None
        if file is not None and file.parent.is_dir() and not file.exists():
            raise CommandError(f"there is no database {file}", f"peerd migrate --database {self._database} makes it")

    def answer(self, value: object, *renderables: RenderableType | Callable[[], RenderableType]) -> None:
        """The command's answer: the value for programs; for people these renderables, or what makes them."""
        if self.as_json:
            self.line(value)
            return
        for item in renderables:
            self.out.print(item() if callable(item) else item)

    def warn(self, sentence: str) -> None:
        """Say to people what may not be meant, on stderr."""
        self.err.print(Text.assemble(("warning: ", "bold yellow"), sanitize(sentence)), soft_wrap=True)

    def line(self, value: object) -> None:
        """A JSON document on a line of stdout."""
        typer.echo(to_json(value))

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what was opened; an error becomes one clear line, and an exit status."""
        self._exit_stack.close()
        if isinstance(error, Exception) and not self.debug and (failure := self.to_command_error(error)) is not None:
            self.print_error(failure)
            raise typer.Exit(failure.status) from error

    def to_command_error(self, error: Exception) -> CommandError | None:
        """The failure that an error is, with the address of a database that does not answer: drivers name no port."""
        failure = to_command_error(error)
        if failure is not None and failure.remedy == CHECK_CONNECTION:
            failure.remedy = CHECK_CONNECTION.replace(
                "the address in [database] url", self.settings.database.masked_url
            )
        return failure

    def print_error(self, failure: CommandError) -> None:
        """Say what went wrong."""
        if self.as_json:
            typer.echo(to_json({"error": failure.as_json()}), err=True)
        else:
            self.err.print(failure.render(), soft_wrap=True)


def console(*, stderr: bool = False) -> Console:
    """A console that paints what we say and nothing else; wide where it is no terminal."""
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = NON_TTY_WIDTH
    return made


def to_json(value: object) -> str:
    """A value as JSON: structs as objects, times in UTC as ISO 8601, bytes as base64, paths as text.

    What could steer a terminal or turn the direction of its text is escaped.
    """
    try:
        text = msgspec.json.encode(value, enc_hook=_encode_value).decode()
        return UNSAFE_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)  # they only stand within strings
    except UnicodeEncodeError:  # an argument that is no text is quoted in it
        return json.dumps(msgspec.to_builtins(value, enc_hook=_encode_value))


def _encode_value(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case datetime():
            return value.isoformat()
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")
