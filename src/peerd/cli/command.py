"""A command of ours: a function of a `Desk` and its own options. What all have in common is added here, once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from peerd.cli.context import Desk

Function = TypeVar("Function", bound=Callable[..., None])
_PANEL = "Options of every command"

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="PATH", rich_help_panel=_PANEL, help="The peerd.toml to read.", show_default=False
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="URL", rich_help_panel=_PANEL, help="The database, whatever peerd.toml says.",
        show_default=False,
    ),
]  # fmt: skip
AsJson = Annotated[
    bool, typer.Option("--json", rich_help_panel=_PANEL, help="Answer in JSON, for programs.", show_default=False)
]
Debug = Annotated[
    bool, typer.Option("--debug", rich_help_panel=_PANEL, help="Show the traceback of an error.", show_default=False)
]
_COMMON: dict[str, Any] = {"config": (Config, None), "database": (Database, None), "as_json": (AsJson, False),
                           "debug": (Debug, False)}  # fmt: skip


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


def command(app: typer.Typer, name: str | None = None) -> Callable[[Function], Function]:
    """Register a function ``(desk, …)`` as a command of the application, with the options that every command has."""

    def register(function: Function) -> Function:
        hints = get_type_hints(function, include_extras=True)
        own = list(inspect.signature(function).parameters.values())[1:]
        common = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default)
            for option, (_, default) in _COMMON.items()
        ]

        def run(**given: Any) -> None:
            config, database, as_json, debug = (given.pop(option) for option in _COMMON)
            with Desk(config, database, as_json=as_json, debug=debug) as desk:
                function(desk, **given)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__annotations__ = {parameter.name: hints[parameter.name] for parameter in own}
        run.__annotations__ |= {option: annotation for option, (annotation, _) in _COMMON.items()}
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=run.__annotations__[parameter.name])
            for parameter in [*own, *common]
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name)(run)
        return function

    return register
