"""Registers functions as commands: each gets a `CommandContext` first, and its options next to the command's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer import Option

from peerd.cli.context import CommandContext

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., None])

RunDirectoryOption = Annotated[
    Path | None, Option(metavar="PATH", help="The node's run directory; then peerd.toml is not read.")
]
NoWaitOption = Annotated[bool, Option("--no-wait", help="Return at once.")]


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
