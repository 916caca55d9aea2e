"""Which server a command works on, and the token that it takes: from options and from the environment.

A token is no option: other users of the machine see the arguments of a process.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from peerd.cli.errors import EXIT_USAGE, CommandError
from peerd.operate.client import Client, is_server_url

SERVER_VARIABLE: Final = "PEERD_SERVER"
TOKEN_VARIABLE: Final = "PEERD_TOKEN"  # noqa: S105 - a variable's name
TOKEN_FILE_VARIABLE: Final = "PEERD_TOKEN_FILE"  # noqa: S105
CA_VARIABLE: Final = "PEERD_SERVER_CA"
SERVER_VARIABLES: Final = (SERVER_VARIABLE, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, CA_VARIABLE)
MAX_TOKEN_FILE: Final = 4096
"""Bytes."""


def find_server(server: str | None, environment: Mapping[str, str], *, is_database_chosen: bool) -> str | None:
    """The URL of the server, if there is one; an option chooses, else the environment.

    Args:
        server: of ``--server``.
        environment: the variables.
        is_database_chosen: whether ``--database`` or ``--config`` names the cluster instead.
    """
    if server is not None and is_database_chosen:
        raise CommandError("which cluster?", "give --server, or --database or --config, not both", status=EXIT_USAGE)
    url = server or (None if is_database_chosen else environment.get(SERVER_VARIABLE) or None)
    if url is not None and not is_server_url(url):
        source = "--server" if server else SERVER_VARIABLE
        remedy = (
            "write http://host:port, https://host:port or unix:/path; a database is an option of its own, --database"
        )
        raise CommandError(f"{source}: this is not the URL of a server", remedy, status=EXIT_USAGE)
    return url


def server_client(url: str, token_file: Path | None, environment: Mapping[str, str]) -> Client:
    """A client of the server."""
    named = environment.get(TOKEN_FILE_VARIABLE) or None
    file = token_file or (Path(named) if named and TOKEN_VARIABLE not in environment else None)
    token = environment.get(TOKEN_VARIABLE) or None if file is None else _read_token(file)
    try:
        return Client(url, token=token, ca=environment.get(CA_VARIABLE) or None)
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
        raise CommandError(f"{file} holds no token", "write the token there, and nothing else", status=EXIT_USAGE)
    return token
