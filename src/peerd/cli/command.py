"""Commands: functions of a `CommandContext` with options of their own. The options that all share are added here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from peerd.cli.context import CommandContext

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., None])
_PANEL = "Options of every command"

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="PATH", rich_help_panel=_PANEL, help="The peerd.toml to read.", show_default=False
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="URL", rich_help_panel=_PANEL, help="The database, whatever peerd.toml says.",
        show_default=False,
    ),
]  # fmt: skip
JsonOption = Annotated[
    bool, typer.Option("--json", rich_help_panel=_PANEL, help="Answer in JSON, for programs.", show_default=False)
]
DebugOption = Annotated[
    bool, typer.Option("--debug", rich_help_panel=_PANEL, help="Show the traceback of an error.", show_default=False)
]
_COMMON_OPTIONS: dict[str, Any] = {
    "config": (ConfigOption, None),
    "database": (DatabaseOption, None),
    "as_json": (JsonOption, False),
                           "debug": (DebugOption, False)}  # fmt: skip


def new_app(text: str | None, **settings: Any) -> typer.Typer:
    """The Typer application of one command, or of a group of them.

    Args:
        text: the module's docstring; its first line is the help.
        settings: Typer's.
    """
    return typer.Typer(
        help=text,
        add_completion=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        **settings,
    )


def command(app: typer.Typer, name: str | None = None) -> Callable[[CommandFunction], CommandFunction]:
    """Register a function ``(context, …)`` as a command of the application, with the options that every command has."""

    def register(function: CommandFunction) -> CommandFunction:
        hints = get_type_hints(function, include_extras=True)
        own = list(inspect.signature(function).parameters.values())[1:]
        common = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default)
            for option, (_, default) in _COMMON_OPTIONS.items()
        ]

        def run(**given: Any) -> None:
            config, database, as_json, debug = (given.pop(option) for option in _COMMON_OPTIONS)
            with CommandContext(config, database, as_json=as_json, debug=debug) as context:
                function(context, **given)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__annotations__ = {parameter.name: hints[parameter.name] for parameter in own}
        run.__annotations__ |= {option: annotation for option, (annotation, _) in _COMMON_OPTIONS.items()}
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=run.__annotations__[parameter.name])
            for parameter in [*own, *common]
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name)(run)
        return function

    return register
