"""The commands ``peerd users …`` and ``peerd tokens …``, and ``peerd files keys …`` of S3's clients."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated, Final

import msgspec
import typer
from rich.text import Text
from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.errors import UsageError
from peerd.cli.output import Fields, format_age, right, wide
from peerd.domain.access import FileAccessKey, FileRights, Right, Role
from peerd.operate import passwords
from peerd.store.tokens import ApiToken
from peerd.store.users import User

app = new_app()
users = new_app("List, add, change and remove users of the API.")
tokens = new_app("List, create and revoke tokens of the API.")
keys = new_app("List, create and revoke access keys of S3's clients.")
app.add_typer(users, name="users")
app.add_typer(tokens, name="tokens")

UserName = Annotated[str, Argument(metavar="NAME", help="The user.")]
RoleOption = Annotated[str, Option("--role", "-r", metavar="ROLE", help="viewer, operator or admin.")]
StdinOption = Annotated[bool, Option("--password-stdin", help="Read the password from stdin, and do not ask for it.")]
ExpiresOption = Annotated[
    str | None, Option("--expires", metavar="DURATION", help="For how long it is valid, e.g. 90d; default: ever.")
]
RIGHTS: Final = f"{', '.join(Right)}. Repeatable."

# ---------------------------------------------------------------- users


@command(users, "list")
def list_users(context: CommandContext) -> None:
    """List all users."""
    found = context.client.users.list()
    empty = "there are no users: peerd users add NAME --role admin makes the first one"
    fields: Fields[User] = (
        ("user", lambda user: user.name),
        ("role", lambda user: user.role),
        ("state", _user_state),
        (right("last login"), lambda user: format_age(user.logged_in_at, context.now)),
    )
    context.print_table(found, fields, found, empty)


@command(users, "add")
def add_user(
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
        raise UsageError("with or without a password? give one of both options")
    password = None if no_password else _read_password(from_stdin=password_stdin)
    _print_role(context, context.client.users.add(name, role, password))


@command(users, "role")
def change_role(context: CommandContext, name: UserName, role: RoleOption) -> None:
    """Change the role of a user, whose sessions end."""
    _print_role(context, context.client.users.change(name, role=role))


@command(users, "password")
def set_password(context: CommandContext, name: UserName, password_stdin: StdinOption = False) -> None:
    """Set the password of a user, whose sessions end."""
    context.client.users.set_password(name, _read_password(from_stdin=password_stdin))
    context.print_result({"name": name}, f"{name} has a new password, and no sessions")


@command(users, "disable")
def disable_user(
    context: CommandContext,
    name: UserName,
    undo: Annotated[bool, Option("--undo", help="Enable it again.")] = False,
) -> None:
    """Let a user log in no more; its sessions end."""
    user = context.client.users.change(name, disabled=not undo)
    context.print_result(user, f"{user.name} is {'disabled' if user.disabled else 'enabled'}")


@command(users, "remove")
def remove_user(context: CommandContext, name: UserName) -> None:
    """Remove a user and its sessions."""
    context.client.users.remove(name)
    context.print_result({"removed": name}, f"{name} is removed")


def _read_password(*, from_stdin: bool) -> str:
    """A password that no list of processes shows: from stdin, or typed twice."""
    if from_stdin:
        return passwords.checked(sys.stdin.readline().rstrip("\n"))
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask for the password", "give --password-stdin")
    hint = f"Password ({passwords.MIN_LENGTH} characters or more)"
    return passwords.checked(typer.prompt(hint, hide_input=True, confirmation_prompt=True, err=True))


def _print_role(context: CommandContext, user: User) -> None:
    context.print_result(user, f"{user.name} is {'a' if user.role is Role.VIEWER else 'an'} {user.role}")


def _user_state(user: User) -> Text:
    if user.disabled:
        return Text("disabled", "yellow")
    return Text("enabled" if user.has_password else "by proxy", "green")


# ---------------------------------------------------------------- tokens


@command(tokens, "list")
def list_tokens(context: CommandContext) -> None:
    """List all tokens, without their secrets."""
    found = context.client.tokens.list()
    fields: Fields[ApiToken] = (
        (right("id"), lambda token: str(token.id)),
        ("token", lambda token: token.name),
        ("begins with", lambda token: f"peerd_{token.prefix}"),
        ("state", lambda token: _validity(token, context.now)),
        (right("last used"), lambda token: format_age(token.last_used_at, context.now)),
        ("rights", lambda token: ", ".join(sorted(token.rights))),
        ("files", _describe_files),
        (wide("queues"), lambda token: "all" if token.queues is None else ", ".join(sorted(token.queues))),
    )
    context.print_table([_token_json(token) for token in found], fields, found, "there are no tokens")


@command(tokens, "create")
def create_token(
    context: CommandContext,
    name: Annotated[str, Argument(metavar="NAME", help="What it is for.")],
    rights: Annotated[list[str], Option("--right", "-r", metavar="RIGHT", help=RIGHTS)],
    queues: Annotated[
        list[str] | None, Option("--queue", "-q", metavar="QUEUE", help="Restrict it to this queue. Repeatable.")
    ] = None,
    file_scopes: Annotated[
        list[str] | None,
        Option("--files", metavar="BUCKET[/PREFIX]", help="Restrict its rights on files to these. Repeatable."),
    ] = None,
    expires: ExpiresOption = None,
) -> None:
    """Create a token, and print it: it is shown this once.

    peerd tokens create encoder --right view --right enqueue --queue video --expires 90d
    """
    made = context.client.tokens.create(
        name, rights, queues=queues or None, file_scopes=file_scopes or None, expires_in=expires
    )
    context.print_result(_token_json(made) | {"secret": made.secret}, made.secret)


@command(tokens, "revoke")
def revoke_tokens(
    context: CommandContext, ids: Annotated[list[int], Argument(metavar="ID", help="Tokens, by their ids.")]
) -> None:
    """Revoke tokens at once."""
    context.act_on_each(ids, context.client.tokens.revoke, "revoked", "is revoked")


def _token_json(token: ApiToken) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(token)
    queues = None if token.queues is None else sorted(token.queues)
    return plain | {"rights": sorted(token.rights), "queues": queues}


def _describe_files(token: ApiToken) -> str:
    if not token.rights & {Right.READ_FILES, Right.WRITE_FILES}:
        return "none"
    return "all" if token.file_scopes is None else ", ".join(token.file_scopes)


def _validity(secret: ApiToken | FileAccessKey, now: datetime) -> Text:
    if secret.revoked_at is not None:
        return Text("revoked", "bright_black")
    if secret.expires_at is not None and secret.expires_at <= now:
        return Text("expired", "bright_black")
    return Text("valid" if secret.expires_at is None else f"valid, ends {format_age(secret.expires_at, now)}", "green")


# ---------------------------------------------------------------- access keys


@command(keys, "list")
def list_keys(context: CommandContext) -> None:
    """List all access keys, without their secrets."""
    found = context.client.files.keys.list()
    fields: Fields[FileAccessKey] = (
        ("access key", lambda key: key.id),
        ("name", lambda key: key.name),
        ("state", lambda key: _validity(key, context.now)),
        (right("last used"), lambda key: format_age(key.last_used_at, context.now)),
        ("rights", lambda key: key.rights.value),
        (wide("files"), lambda key: "all" if key.scopes is None else ", ".join(key.scopes)),
    )
    context.print_table(msgspec.to_builtins(found), fields, found, "there are no access keys")


@command(keys, "create")
def create_key(
    context: CommandContext,
    name: Annotated[str, Argument(metavar="NAME", help="Whose it is, or what for.")],
    rights: Annotated[
        str, Option("--rights", metavar="RIGHTS", help="read, write (put and delete without reading) or read-write.")
    ] = FileRights.ALL.value,
    scopes: Annotated[
        list[str] | None,
        Option("--scope", metavar="BUCKET[/PREFIX]", help="Only these files, e.g. team-*/films/. Repeatable."),
    ] = None,
    expires: ExpiresOption = None,
) -> None:
    """Create an access key, and print it with its secret, which is shown this once.

    peerd files keys create backup --rights write --scope backups/laptop/ --expires 90d
    """
    made = context.client.files.keys.create(name, rights, scopes=scopes or None, expires_in=expires)
    answer = msgspec.to_builtins(made.key) | {"secret": made.secret}
    context.print_result(answer, f"access key  {made.key.id}", f"secret      {made.secret}")


@command(keys, "revoke")
def revoke_keys(
    context: CommandContext,
    ids: Annotated[list[str], Argument(metavar="KEY", help="Access keys, as clients name them: PEERD….")],
) -> None:
    """Revoke access keys at once, also in presigned URLs."""
    context.act_on_each(ids, context.client.files.keys.revoke, "revoked", "is revoked")
