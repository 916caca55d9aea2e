"""The commands ``peerd tokens …``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec
from rich.text import Text
from typer import Argument, Option

from peerd.cli.command import CommandContext, command, new_app
from peerd.cli.output import AlignedTable, format_age, right, wide
from peerd.domain.access import Right
from peerd.store.tokens import ApiToken

app = new_app("List, create and revoke tokens of the API.")

COLUMNS = (right("id"), "token", "begins with", "state", right("last used"), "rights", "files", wide("queues"))
RIGHTS: Final = f"{', '.join(Right)}. Repeatable."


@command(app, "list")
def list_tokens(context: CommandContext) -> None:
    """List all tokens, without their secrets."""
    tokens = context.client.tokens.list()
    answer = [_as_json(token) for token in tokens]
    context.print_result(
        answer, lambda: _tokens_table(tokens, context.client.now()) if tokens else Text("there are no tokens")
    )


@command(app)
def create(
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
    expires: Annotated[
        str | None, Option("--expires", metavar="DURATION", help="For how long it is valid, e.g. 90d; default: ever.")
    ] = None,
) -> None:
    """Create a token, and print it: it is shown this once.

    peerd tokens create encoder --right view --right enqueue --queue video --expires 90d
    """
    made = context.client.tokens.create(
        name, rights, queues=queues or None, file_scopes=file_scopes or None, expires_in=expires
    )
    context.print_result(_as_json(made) | {"secret": made.secret}, Text(made.secret))


@command(app)
def revoke(
    context: CommandContext, ids: Annotated[list[int], Argument(metavar="ID", help="Tokens, by their ids.")]
) -> None:
    """Revoke tokens at once."""
    context.act_on_each(ids, context.client.tokens.revoke, "revoked", "is revoked")


def _as_json(token: ApiToken) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(token)
    queues = None if token.queues is None else sorted(token.queues)
    return plain | {"rights": sorted(token.rights), "queues": queues}


def _tokens_table(tokens: list[ApiToken], now: datetime) -> AlignedTable:
    return AlignedTable(COLUMNS, [_row(token, now) for token in tokens])


def _row(token: ApiToken, now: datetime) -> list[Text | str]:
    queues = "all" if token.queues is None else ", ".join(sorted(token.queues))
    files = "all" if token.file_scopes is None else ", ".join(token.file_scopes)
    if not token.rights & {Right.READ_FILES, Right.WRITE_FILES}:
        files = "none"
    used = format_age(token.last_used_at, now)
    begin = f"peerd_{token.prefix}"
    return [str(token.id), token.name, begin, _state(token, now), used, ", ".join(sorted(token.rights)), files, queues]


def _state(token: ApiToken, now: datetime) -> Text:
    if token.revoked_at is not None:
        return Text("revoked", "bright_black")
    if token.expires_at is None:
        return Text("valid", "green")
    if token.expires_at <= now:
        return Text("expired", "bright_black")
    return Text(f"valid, ends {format_age(token.expires_at, now)}", "green")
