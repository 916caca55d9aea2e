"""The commands ``peerd users …``."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text
from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.cli.output import AlignedTable, format_age, right
from peerd.domain.access import Role
from peerd.operate import passwords
from peerd.store.users import User

app = new_app("List, add, change and remove users of the API.")

UserName = Annotated[str, Argument(metavar="NAME", help="The user.")]
RoleOption = Annotated[str, Option("--role", "-r", metavar="ROLE", help="viewer, operator or admin.")]
StdinOption = Annotated[bool, Option("--password-stdin", help="Read the password from stdin, and do not ask for it.")]
COLUMNS = ("user", "role", "state", right("last login"))


@command(app, "list")
def list_users(context: CommandContext) -> None:
    """List all users."""
    users = context.client.users.list()
    empty = "there are no users: peerd users add NAME --role admin makes the first one"
    context.print_result(users, lambda: _users_table(users, context.client.now()) if users else Text(empty))


@command(app)
def add(
    context: CommandContext,
    name: UserName,
    role: RoleOption = Role.VIEWER,
    password_stdin: StdinOption = False,
    no_password: Annotated[bool, Option("--no-password", help="A trusted proxy names the user.")] = False,
) -> None:
    """Add a user. From the first one on, the API does nothing without a login or a token.

    peerd users add ann --role admin
    """
    if no_password and password_stdin:
        raise CommandError("with or without a password? give one of both options", status=EXIT_USAGE)
    password = None if no_password else _read_password(from_stdin=password_stdin)
    user = context.client.users.add(name, role, password)
    context.print_result(user, f"{user.name} is {_with_article(user.role)}")


@command(app)
def role(context: CommandContext, name: UserName, role: RoleOption) -> None:
    """Change the role of a user, whose sessions end."""
    user = context.client.users.change(name, role=role)
    context.print_result(user, f"{user.name} is {_with_article(user.role)}")


@command(app)
def password(context: CommandContext, name: UserName, password_stdin: StdinOption = False) -> None:
    """Set the password of a user, whose sessions end."""
    context.client.users.set_password(name, _read_password(from_stdin=password_stdin))
    context.print_result({"name": name}, f"{name} has a new password, and no sessions")


@command(app)
def disable(
    context: CommandContext,
    name: UserName,
    undo: Annotated[bool, Option("--undo", help="Enable it again.")] = False,
) -> None:
    """Let a user log in no more; its sessions end."""
    user = context.client.users.change(name, disabled=not undo)
    context.print_result(user, f"{user.name} is {'disabled' if user.disabled else 'enabled'}")


@command(app)
def remove(context: CommandContext, name: UserName) -> None:
    """Remove a user and its sessions."""
    context.client.users.remove(name)
    context.print_result({"removed": name}, f"{name} is removed")


def _read_password(*, from_stdin: bool) -> str:
    """A password that no list of processes shows: from stdin, or typed twice."""
    if from_stdin:
        return passwords.checked(sys.stdin.readline().rstrip("\n"))
    if not sys.stdin.isatty():
        raise CommandError("there is no terminal to ask for the password", "give --password-stdin", status=EXIT_USAGE)
    hint = f"Password ({passwords.MIN_LENGTH} characters or more)"
    return passwords.checked(typer.prompt(hint, hide_input=True, confirmation_prompt=True, err=True))


def _with_article(role: Role) -> str:
    return f"{'a' if role is Role.VIEWER else 'an'} {role}"


def _users_table(users: list[User], now: datetime) -> AlignedTable:
    return AlignedTable(COLUMNS, [_row(user, now) for user in users])


def _row(user: User, now: datetime) -> list[Text | str]:
    if user.disabled:
        state = Text("disabled", "yellow")
    else:
        state = Text("enabled", "green") if user.has_password else Text("by proxy", "green")
    return [user.name, user.role, state, format_age(user.logged_in_at, now)]
