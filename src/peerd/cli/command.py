"""What every command has: registration, common options, the settings, a client, and output for people or programs."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import is_dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Self, TypeVar, get_type_hints

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.text import Text
from sqlalchemy.engine import make_url
from typer import Option

from peerd.cli.errors import CHECK_CONNECTION, SEE_TRACEBACK, CommandError, UsageError, keep_traceback, to_command_error
from peerd.cli.output import AlignedTable, Fields, sanitize
from peerd.config import Settings, load
from peerd.config.address import is_sqlite, make_sqlite_path_absolute, normalise_url
from peerd.config.source import CONFIG_VARIABLE, current_folder
from peerd.domain.quoting import UNSAFE_CHARACTERS
from peerd.operate.actors import cli_actor
from peerd.operate.client import Client, is_server_url

SERVER_VARIABLE: Final = "PEERD_SERVER"
TOKEN_VARIABLE: Final = "PEERD_TOKEN"  # noqa: S105 - a variable's name
TOKEN_FILE_VARIABLE: Final = "PEERD_TOKEN_FILE"  # noqa: S105
CA_VARIABLE: Final = "PEERD_SERVER_CA"
SERVER_VARIABLES: Final = (SERVER_VARIABLE, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, CA_VARIABLE)
MAX_TOKEN_FILE: Final = 4096
"""Bytes."""


# ---------------------------------------------------------------- one run of a command


T = TypeVar("T")
NON_TTY_WIDTH = 160
"""The width of tables that are not printed to a terminal."""
_common = partial(Option, rich_help_panel="Common options")


class CommandContext:
    """A run of a command. Its parameters are the options that every command has.

    Results go to stdout: tables and sentences for people, or one JSON document. Errors go to stderr.

    Args:
        config: the peerd.toml to read.
        database: the URL to use instead of the configured one.
        server: the URL of a server to use instead of a database; then there need be no peerd.toml.
        token_file: with the token that the server takes.
        as_json: whether the output is JSON.
        traceback: whether errors are printed with their traceback.
    """

    def __init__(
        self,
        config: Annotated[
            Path | None, _common("--config", "-c", metavar="PATH", help="The peerd.toml to read.")
        ] = None,
        database: Annotated[
            str | None, _common(metavar="URL", help="The database to use instead of the configured one.")
        ] = None,
        server: Annotated[
            str | None, _common(metavar="URL", help="A server of the cluster, instead of its database.")
        ] = None,
        token_file: Annotated[Path | None, _common(metavar="PATH", help="The file with the server's token.")] = None,
        as_json: Annotated[bool, _common("--json", help="Print JSON.")] = False,
        traceback: Annotated[bool, _common("--traceback", help="Print the traceback of an error.")] = False,
    ) -> None:
        self.config = config
        self.as_json = as_json
        self.traceback = traceback
        self.may_create_database = False
        """Whether an SQLite file that `database` names is created if it is missing."""
        self._database = database
        self._server = server
        self._token_file = token_file
        self._exit_stack = ExitStack()
        self.out = _make_console()
        self.err = _make_console(stderr=True)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables, with the configuration file and the database URL of the command line.

        The processes of a node inherit them, so that user code reads the same settings as the node.
        """
        variables = {**os.environ}
        if self.config is not None:
            variables[CONFIG_VARIABLE] = str(current_folder() / self.config)
        if self._database is not None:
            try:
                normalise_url(self._database)
                variables["PEERD_DATABASE_URL"] = make_sqlite_path_absolute(self._database, Path.cwd())
            except ValueError as error:
                raise UsageError(f"--database: {error}") from None
        return variables

    @cached_property
    def server(self) -> str | None:
        """The URL of the server that takes the place of a database; an option chooses, else the environment."""
        is_database_chosen = self._database is not None or self.config is not None
        if self._server is not None and is_database_chosen:
            raise UsageError("which cluster?", "give --server, or --database or --config, not both")
        url = self._server or (None if is_database_chosen else os.environ.get(SERVER_VARIABLE) or None)
        if url is not None and not is_server_url(url):
            source = "--server" if self._server else SERVER_VARIABLE
            accepted = "http://host:port, https://host:port or unix:/path"
            remedy = f"write {accepted}; a database is an option of its own, --database"
            raise UsageError(f"{source}: this is not the URL of a server", remedy)
        return url

    def require_this_machine(self) -> None:
        """Refuse ``--server`` to a command about this machine; $PEERD_SERVER does not concern it."""
        if self._server is not None or self._token_file is not None:
            option = "--server" if self._server is not None else "--token-file"
            remedy = f"leave {option} out, and run the command on the machine that it is for"
            raise UsageError("this command works on this machine and its peerd.toml, not on a server", remedy)

    def keep_to_this_machine(self) -> None:
        """Refuse ``--server``, and leave $PEERD_SERVER alone."""
        self.require_this_machine()
        self.server = None

    @cached_property
    def settings(self) -> Settings:
        """The settings of this project.

        Raises:
            ConfigError: with every problem.
            CommandError: there is a server instead.
        """
        self.require_this_machine()
        return load(self.config, self.environment)

    @cached_property
    def client(self) -> Client:
        """A client for the server or the configured database; it is closed after the command.

        Raises:
            CommandError: `database` names an SQLite file that is missing, and the command may not create it.
        """
        if self.server is not None:
            return self._exit_stack.enter_context(_client_of_server(self.server, self._token_file))
        url = self.settings.database.url
        if self._database is not None and not self.may_create_database and is_sqlite(url):
            file = Path(make_url(url).database or "")
            if file.parent.is_dir() and not file.exists():
                remedy = f"create it with: peerd migrate --database {self._database}"
                raise CommandError(f"there is no database {file}", remedy)
        client = Client(url, secret=self.settings.cluster.secret, mask=self.settings.access.mask)
        return self._exit_stack.enter_context(client).acting_as(cli_actor())

    @cached_property
    def now(self) -> datetime:
        """The time of the database, up to which ages are counted."""
        return self.client.now()

    def print_result(
        self, value: object, *items: RenderableType | Callable[[], RenderableType], failed: bool = False
    ) -> None:
        """Print the command's result.

        Args:
            value: what is printed as JSON.
            items: what is printed for people, or functions that make it; strings are sanitized.
            failed: whether the command ends here, with exit status 1.
        """
        if self.as_json:
            self.print_json_line(value)
        else:
            for item in items:
                printed = item() if callable(item) else item
                is_text = isinstance(printed, str | Text)  # the terminal wraps it, so that it can be copied or piped
                self.out.print(sanitize(printed) if isinstance(printed, str) else printed, soft_wrap=is_text)
        if failed:
            raise typer.Exit(1)

    def print_table(self, value: object, fields: Fields[T], items: Sequence[T], empty: str) -> None:
        """Print a row for each item; without any, a sentence.

        Args:
            value: what is printed as JSON.
            fields: the columns and their cells, which are made only if they are printed.
            items: what the rows are made of.
            empty: the sentence.
        """
        self.print_result(value, lambda: AlignedTable(fields, items) if items else empty)

    def print_hint(self, hint: str) -> None:
        """Print below a result, for people, how to see more of it."""
        if not self.as_json:
            self.out.print(Text(f"  {hint}", "bright_black"), soft_wrap=True)

    def act_on_each(self, names: Sequence[T], act: Callable[[T], object], key: str, past: str, **more: object) -> None:
        """Act on some names, and print for which it was done; also where one of them is refused, which ends it.

        Args:
            names: of queues, nodes or schedules; or the ids of others.
            act: is called with each.
            key: of the names that were done, in JSON.
            past: what has become of a name, for people.
            more: other values of the JSON.
        """
        done: list[T] = []
        try:
            for name in names:
                act(name)
                done.append(name)
        finally:
            if done:
                self.print_result({key: done, **more}, *[f"{name} {past}" for name in done])

    def print_json_line(self, value: object) -> None:
        """Print a value as JSON on one line."""
        typer.echo(to_json(value))

    def print_warning(self, sentence: str) -> None:
        """Print a warning to stderr, for people."""
        if not self.as_json:
            self.err.print(Text.assemble(("warning: ", "bold yellow"), sanitize(sentence)), soft_wrap=True)

    def warn_of_more(self, limit: int) -> None:
        """Say that a list has ended at its limit."""
        self.print_warning(f"there are more; --limit {limit * 10} shows {limit * 10:,}")

    def confirm(self, question: str) -> None:
        """Ask whether it shall be done, and end the command if not; a program cannot be asked."""
        if self.as_json:
            raise CommandError(f"this needs a confirmation ({question.removesuffix('?')})", "give --yes")
        typer.confirm(question, abort=True, err=True)

    def print_error(self, error: CommandError) -> None:
        """Print an error to stderr."""
        if self.as_json:
            typer.echo(to_json({"error": error.as_json()}), err=True)
        else:
            self.err.print(error.render(), soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client; print an expected error and exit with its status."""
        self._exit_stack.close()
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(130) from None
        if isinstance(error, Exception) and not self.traceback and (failure := self.to_command_error(error)):
            if failure.remedy == SEE_TRACEBACK:
                failure.remedy = keep_traceback(error)
            self.print_error(failure)
            raise typer.Exit(failure.status) from error

    def to_command_error(self, error: Exception) -> CommandError | None:
        """The error with its remedy, which names the database's URL: drivers name no port. None if unexpected.

        The error of a server names the server.
        """
        failure = to_command_error(error)
        if failure is not None and failure.remedy == CHECK_CONNECTION and self.server is None:
            failure.remedy += f" at {self.settings.database.masked_url}"
        return failure


def _client_of_server(url: str, token_file: Path | None) -> Client:
    """A client of a server. Its token is no option: other users of the machine see the arguments of a process."""
    named = os.environ.get(TOKEN_FILE_VARIABLE) or None
    file = token_file or (Path(named) if named and TOKEN_VARIABLE not in os.environ else None)
    token = os.environ.get(TOKEN_VARIABLE) or None if file is None else _read_token(file)
    try:
        return Client(url, token=token, ca=os.environ.get(CA_VARIABLE) or None)
    except ImportError as error:
        message, _, remedy = str(error).partition(": ")
        raise CommandError(message, remedy) from None


def _read_token(file: Path) -> str:
    with file.open("rb") as opened:
        content = opened.read(MAX_TOKEN_FILE + 1)
    try:
        token = content.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or len(content) > MAX_TOKEN_FILE:
        raise UsageError(f"{file} holds no token", "write the token there, and nothing else")
    return token


def _make_console(*, stderr: bool = False) -> Console:
    made = Console(stderr=stderr, highlight=False, markup=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = NON_TTY_WIDTH
    return made


def to_json(value: object) -> str:
    """A value as JSON: structs as objects, times in UTC as ISO 8601, bytes as base64, paths as text.

    Characters that control a terminal or the direction of its text are escaped.
    """
    try:
        text = msgspec.json.encode(value, enc_hook=_encode_value).decode()
        return UNSAFE_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)  # they only stand within strings
    except UnicodeEncodeError:  # a surrogate, of an argument that is not UTF-8
        return json.dumps(msgspec.to_builtins(value, enc_hook=_encode_value))


def _encode_value(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


# ---------------------------------------------------------------- registration


CommandFunction = TypeVar("CommandFunction", bound=Callable[..., None])


def new_app(group_help: str | None = None) -> typer.Typer:
    """A Typer application for commands; with a help text, for a group of subcommands."""
    return typer.Typer(help=group_help, add_completion=False, no_args_is_help=group_help is not None)


def command(
    app: typer.Typer, name: str | None = None, *, of_this_machine: bool = False
) -> Callable[[CommandFunction], CommandFunction]:
    """Register a function ``(context, …)`` as a command.

    A parameter whose type is a dataclass stands for the options that the dataclass has as fields. A command
    `of_this_machine` refuses ``--server``.
    """

    def register(function: CommandFunction) -> CommandFunction:
        _context, *own = _parameters(function)
        groups: dict[str, Any] = {
            parameter.name: parameter.annotation for parameter in own if is_dataclass(parameter.annotation)
        }
        _self, *common = _parameters(CommandContext.__init__)
        options = [option for one in own for option in (_parameters(groups[one.name]) if one.name in groups else [one])]
        options += common

        def run(**values: Any) -> None:
            with CommandContext(**{option.name: values.pop(option.name) for option in common}) as context:
                for parameter, group in groups.items():
                    values[parameter] = group(**{option.name: values.pop(option.name) for option in _parameters(group)})
                if of_this_machine:
                    context.keep_to_this_machine()
                function(context, **values)

        run.__name__ = function.__name__
        run.__doc__ = _unwrap_paragraphs(inspect.getdoc(function) or "")
        run.__annotations__ = {option.name: option.annotation for option in options}
        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        app.command(name)(run)
        return function

    return register


def _parameters(function: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    found = inspect.signature(function).parameters.values()
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints.get(one.name)) for one in found]


def _unwrap_paragraphs(text: str) -> str:
    """The help text without the line breaks of the source, which Typer would keep."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
