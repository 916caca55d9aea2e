"""The actors that need no login, because they have the database's password: this program, and the command line."""

from __future__ import annotations

import os
import pwd
import socket
from functools import cache

from peerd.domain.access import ALL_RIGHTS, Actor, ActorKind


@cache
def python_actor() -> Actor:
    """A program that uses a `Client`."""
    return _system_actor(ActorKind.PYTHON)


@cache
def cli_actor() -> Actor:
    """A command of ``peerd``."""
    return _system_actor(ActorKind.CLI)


def _system_actor(kind: ActorKind) -> Actor:
    return Actor(name=_system_user(), kind=kind, rights=ALL_RIGHTS, address=socket.gethostname())


def _system_user() -> str:
    """The user that this process runs as; variables such as LOGNAME would say what anything has put there."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # as in many containers
        return f"uid {number}"
