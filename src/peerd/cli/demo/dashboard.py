"""The dashboard of ``peerd demo --open``: what it needs, its address, and the command that shows it."""

from __future__ import annotations

import errno
import http.client
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from peerd.cli.errors import CommandError
from peerd.cli.following import poll
from peerd.domain.errors import PackageMissing
from peerd.supervision.control_client import status

HOST: Final = "127.0.0.1"
EXTRA: Final = "dashboard"
PACKAGES: Final[Mapping[str, str]] = {
    "argon2": "argon2-cffi",
    "fastapi": "fastapi",
    "httptools": "httptools",
    "jinja2": "jinja2",
    "prometheus_client": "prometheus-client",
    "pydantic": "pydantic",
    "uvicorn": "uvicorn",
    "websockets": "websockets",
}
"""The modules that the extra brings, and the packages that they are in; a test compares them with pyproject.toml."""
RUN_BY_VARIABLE: Final = "PEERD_DEMO_RUN_BY"
"""Set to "make" by the Makefile's target."""
ANSWER_TIMEOUT: Final = 30.0


def missing_packages() -> list[str]:
    """The packages of the extra that are not installed."""
    return [package for module, package in PACKAGES.items() if find_spec(module) is None]


def require_dashboard(port: int | None) -> None:
    """Check what can prevent the dashboard, before anything is started.

    Args:
        port: the chosen one; None is a free one.

    Raises:
        PackageMissing: a package of the extra is not installed.
        CommandError: the port is taken, or may not be used.
    """
    missing = missing_packages()
    if missing:
        raise PackageMissing(" and ".join(missing), EXTRA)
    if port is not None:
        _require_free_port(port)


class DashboardLogin(NamedTuple):
    """The address of the dashboard, and with what one logs in."""

    address: str
    name: str
    password: str

    def __str__(self) -> str:
        return f"{self.address} (log in as {self.name}, password {self.password})"


def wait_for_dashboard(run_directory: Path, log: Path) -> str:
    """Wait until the dashboard of a running node answers, and return its URL.

    Raises:
        CommandError: it does not answer in time, or answers with an error.
    """
    [bound] = status(run_directory)["sockets"]  # the node listens for nothing else
    address = str(bound["addresses"][0])
    problem: str | None = None
    for problem in poll(lambda: _find_problem(address), ANSWER_TIMEOUT):
        if problem is None:
            return f"http://{address}/"
    raise CommandError(f"the dashboard at http://{address}/ does not answer: {problem}", f"read {log}")


def open_command(environment: Mapping[str, str], program: str) -> str:
    """The command line of a demo with the dashboard, as it works where this demo was started.

    Args:
        environment: of this process.
        program: ``sys.argv[0]``.

    >>> open_command({"PEERD_DEMO_RUN_BY": "make"}, ".venv/bin/peerd")
    'make demo ARGUMENTS=--open'
    >>> open_command({"PATH": ""}, ".venv/bin/peerd")
    '.venv/bin/peerd demo --open'
    """
    if environment.get(RUN_BY_VARIABLE) == "make":
        return "make demo ARGUMENTS=--open"
    if Path(program).name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m peerd demo --open"
    name = Path(program).name
    on_path = shutil.which(name, path=environment.get("PATH", ""))
    is_on_path = on_path is not None and Path(program).exists() and Path(on_path).samefile(program)
    return f"{shlex.quote(name if is_on_path else program)} demo --open"


def _require_free_port(port: int) -> None:
    remedy = "give another one with --port, or leave --port out for a free one"
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the node does: a port in TIME_WAIT is free
        try:
            one.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise CommandError(f"port {port} is taken: another program listens on {HOST}:{port}", remedy) from error
            reason = os.strerror(error.errno or 0).lower()
            raise CommandError(f"port {port} cannot be used: {reason}", remedy) from error


def _find_problem(address: str) -> str | None:
    """What is wrong with the answer to a request of the overview; None if it is a page, or leads to the login."""
    connection = http.client.HTTPConnection(address, timeout=ANSWER_TIMEOUT)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        is_page = answer.status < http.HTTPStatus.BAD_REQUEST
        return None if is_page else f"status {answer.status} {answer.reason}"
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
