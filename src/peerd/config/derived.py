"""Derives settings from others and from the file's folder: absolute paths, passwords and secrets, and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import asdict, replace

from peerd.config.address import add_password, has_password, is_sqlite, make_sqlite_path_absolute
from peerd.config.problems import Problem
from peerd.config.section import Section
from peerd.config.settings import (
    ClusterSettings,
    DatabaseSettings,
    Document,
    GatewaySettings,
    NodeSettings,
    Settings,
    WebSettings,
)
from peerd.config.source import ConfigSource
from peerd.config.storage import find_storage_problems, with_storage
from peerd.config.values import check_token
from peerd.domain.bind_address import UnixAddress, parse_bind_address

Serving = TypeVar("Serving", WebSettings, GatewaySettings)

MIN_SECRET_LENGTH, MAX_SECRET_LENGTH = 16, 1000
"""Characters."""


def derive_settings(document: Document, source: ConfigSource) -> tuple[Settings, list[Problem]]:
    """The settings with absolute paths and the database's password, and the problems of password and secret files."""
    folder, node, manager, problems = source.folder, document.node, document.manager, list[Problem]()
    if not source.is_set("node", "run_directory"):
        node = replace(node, run_directory=_default_run_directory(folder, node))
    if not source.is_set("manager", "inactive_after"):
        manager = replace(manager, inactive_after=2 * node.heartbeat_every)
    given: Document = _with_absolute_paths(replace(document, node=node, manager=manager), folder)
    database = replace(given.database, url=make_sqlite_path_absolute(given.database.url, folder))
    derived = {
        "database": _with_password(database, source, problems),
        "cluster": _with_secret(given.cluster, source, problems),
        "web": {name: _with_absolute_sockets(web, folder) for name, web in given.web.items()},
        "gateway": {
            name: _with_token(name, _with_absolute_sockets(gateway, folder), source, problems)
            for name, gateway in given.gateway.items()
        },
    }
    settings = Settings(project_directory=folder, file=source.file, **{**asdict(given), **derived})
    problems += [*_mail_problems(settings, source), *find_storage_problems(settings, source)]
    return with_storage(settings), problems


def _default_run_directory(folder: Path, node: NodeSettings) -> Path:
    """In the project's folder; beside it where that is a link, which may be switched to another release."""
    inside, beside = (
        folder / node.run_directory / node.name,
        folder.parent / node.run_directory / folder.name / node.name,
    )
    return beside if folder.is_symlink() and (beside.exists() or not inside.exists()) else inside


def _with_absolute_paths(value: Any, folder: Path) -> Any:
    """The value of a setting with absolute paths; those in the file are relative to its folder."""
    match value:
        case Path():
            return folder / value.expanduser()
        case Section():
            return replace(value, **{key: _with_absolute_paths(one, folder) for key, one in asdict(value).items()})
        case tuple():
            return tuple(_with_absolute_paths(one, folder) for one in value)
        case dict():
            return {key: _with_absolute_paths(one, folder) for key, one in value.items()}
        case _:
            return value


def _with_absolute_sockets(section: Serving, folder: Path) -> Serving:
    addresses = [(bind, parse_bind_address(bind)) for bind in section.bind]
    absolute = [f"unix:{folder / at.path}" if isinstance(at, UnixAddress) else bind for bind, at in addresses]
    return replace(section, bind=tuple(absolute))


def _mail_problems(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """Passwords of mail servers are read for each mail; a missing file is reported now, not with the first alert."""
    for name, hook in settings.alerts.items():
        mail = hook.mail
        if mail is None or mail.password_file is None:
            continue
        key_path = ("alerts", name, "mail", "password_file")
        if mail.user is None and source.has_valid(("alerts", name, "mail", "user")):
            yield source.problem(key_path, "there is a password, and no user that it belongs to", "give mail.user too")
        if not mail.password_file.is_file():
            yield source.problem(key_path, f"{mail.password_file}: there is no such file", "write the password there")


def _with_password(database: DatabaseSettings, source: ConfigSource, problems: list[Problem]) -> DatabaseSettings:
    if database.password_file is None or not source.has_valid(("database", "url")):
        return database
    remedy, password = "", ""
    if is_sqlite(database.url):
        problem, remedy = "SQLite has no password", "take it out"
    elif has_password(database.url):
        problem, remedy = "the url holds a password already", "keep one of them"
    else:
        password, problem = _read_secret_file(database.password_file)
        remedy = "write the password there, and nothing else"
    if problem:
        problems.append(source.problem(("database", "password_file"), problem, remedy))
        return database
    return replace(database, url=add_password(database.url, password))


def _with_secret(cluster: ClusterSettings, source: ConfigSource, problems: list[Problem]) -> ClusterSettings:
    key_path = ("cluster", "secret_file")
    if cluster.secret_file is None:
        return cluster
    if cluster.secret is not None:
        problems.append(source.problem(key_path, "there is a secret already", "keep one of them"))
        return cluster
    secret, problem = _read_secret_file(cluster.secret_file)
    if not problem and not MIN_SECRET_LENGTH <= len(secret) <= MAX_SECRET_LENGTH:
        limits = f"{MIN_SECRET_LENGTH} to {MAX_SECRET_LENGTH} characters"
        problem = f"{cluster.secret_file}: a secret has {limits}, this one {len(secret)}"
    if problem:
        remedy = "write one there, the same on every node: head -c 32 /dev/urandom | base64"
        problems.append(source.problem(key_path, problem, remedy))
        return cluster
    return replace(cluster, secret=secret)


def _with_token(name: str, gateway: GatewaySettings, source: ConfigSource, problems: list[Problem]) -> GatewaySettings:
    key_path = ("gateway", name, "token_file")
    if gateway.token_file is None:
        return gateway
    if gateway.token is not None:
        problems.append(source.problem(key_path, "there is a token already", "keep one of them"))
        return gateway
    token, problem = _read_secret_file(gateway.token_file)
    if not problem:
        try:
            return replace(gateway, token=check_token(token))
        except ValueError as error:
            problem = f"{gateway.token_file}: a token {error}"
    remedy = "write one there, which clients present: head -c 32 /dev/urandom | base64"
    problems.append(source.problem(key_path, problem, remedy))
    return gateway


def _read_secret_file(file: Path) -> tuple[str, str]:
    """The content of a file without line ends, and the problem if it cannot be used."""
    try:
        text = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        return "", f"{file}: {reason.lower()}"
    return text, "" if text else f"{file} is empty"
