"""Settle what depends on the place of the file and on other settings: paths, the password, derived defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from peerd.config.address import add_password, has_password, is_sqlite, make_sqlite_path_absolute
from peerd.config.problems import Problem
from peerd.config.reading.source import ConfigSource
from peerd.config.settings import (
    AlertSettings,
    ClusterSettings,
    DatabaseSettings,
    Document,
    LoggingSettings,
    ManagerSettings,
    NodeSettings,
    Settings,
    WebSettings,
)
from peerd.domain.bind_address import UnixAddress, parse_bind_address

MIN_SECRET_LENGTH, MAX_SECRET_LENGTH = 16, 1000
"""Characters."""


def derive_settings(document: Document, source: ConfigSource) -> tuple[Settings, list[Problem]]:
    """The settings with absolute paths and the database's password, and what went wrong with the password."""
    database, problems = _with_password(_with_absolute_paths(document.database, source.folder), source)
    cluster, secret_problems = _with_secret(document.cluster, source)
    settings = Settings(
        project_directory=source.folder,
        file=source.file,
        node=_with_run_directory(document.node, source),
        database=database,
        cluster=cluster,
        workers=document.workers,
        web={name: _with_absolute_sockets(web, source.folder) for name, web in document.web.items()},
        commands=document.commands,
        agent=document.agent,
        schedules=document.schedules,
        manager=_with_inactive_after(document.manager, document.node, source),
        logging=_with_absolute_file(document.logging, source.folder),
        alerts={name: _with_absolute_password_file(hook, source.folder) for name, hook in document.alerts.items()},
    )
    return settings, [*problems, *secret_problems, *_mail_problems(settings, source)]


def _with_run_directory(node: NodeSettings, source: ConfigSource) -> NodeSettings:
    given = node.run_directory if source.is_set("node", "run_directory") else node.run_directory / node.name
    return replace(node, run_directory=source.folder / given.expanduser())


def _with_absolute_file(logging: LoggingSettings, folder: Path) -> LoggingSettings:
    file = logging.file
    return logging if file is None else replace(logging, file=folder / file.expanduser())


def _with_inactive_after(manager: ManagerSettings, node: NodeSettings, source: ConfigSource) -> ManagerSettings:
    if source.is_set("manager", "inactive_after"):
        return manager
    return replace(manager, inactive_after=2 * node.heartbeat_every)


def _with_absolute_paths(database: DatabaseSettings, folder: Path) -> DatabaseSettings:
    file = database.password_file
    return replace(
        database,
        url=make_sqlite_path_absolute(database.url, folder),
        password_file=None if file is None else folder / file.expanduser(),
    )


def _with_absolute_password_file(hook: AlertSettings, folder: Path) -> AlertSettings:
    if hook.mail is None or hook.mail.password_file is None:
        return hook
    file = folder / hook.mail.password_file.expanduser()
    return replace(hook, mail=replace(hook.mail, password_file=file))


def _mail_problems(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """A password that cannot be read is found out now, and not with the first alert. It is read anew for each mail."""
    for name, hook in settings.alerts.items():
        mail = hook.mail
        if mail is None or mail.password_file is None:
            continue
        key_path = ("alerts", name, "mail", "password_file")
        if mail.user is None and source.has_valid(("alerts", name, "mail", "user")):
            yield source.problem(key_path, "there is a password, and no user that it belongs to", "give mail.user too")
        if not mail.password_file.is_file():
            yield source.problem(key_path, f"{mail.password_file}: there is no such file", "write the password there")


def _with_absolute_sockets(web: WebSettings, folder: Path) -> WebSettings:
    """Paths of unix sockets are meant from the project folder, as all paths are."""
    return replace(web, bind=tuple(_with_absolute_socket(bind, folder) for bind in web.bind))


def _with_absolute_socket(bind: str, folder: Path) -> str:
    match parse_bind_address(bind):
        case UnixAddress(path):
            return f"unix:{folder / path}"
        case _:
            return bind


def _with_password(database: DatabaseSettings, source: ConfigSource) -> tuple[DatabaseSettings, list[Problem]]:
    key_path = ("database", "password_file")
    file = database.password_file
    if file is None or not source.has_valid(("database", "url")):
        return database, []
    if is_sqlite(database.url):
        return database, [source.problem(key_path, "SQLite has no password", "take it out")]
    if has_password(database.url):
        return database, [source.problem(key_path, "the url holds a password already", "keep one of them")]
    password, problem = _read_secret_file(file)
    if problem:
        return database, [source.problem(key_path, problem, "write the password there, and nothing else")]
    return replace(database, url=add_password(database.url, password)), []


def _with_secret(cluster: ClusterSettings, source: ConfigSource) -> tuple[ClusterSettings, list[Problem]]:
    key_path = ("cluster", "secret_file")
    if cluster.secret_file is None:
        return cluster, []
    file = source.folder / cluster.secret_file.expanduser()
    if cluster.secret is not None:
        return cluster, [source.problem(key_path, "there is a secret already", "keep one of them")]
    secret, problem = _read_secret_file(file)
    if not problem and not MIN_SECRET_LENGTH <= len(secret) <= MAX_SECRET_LENGTH:
        problem = f"{file}: a secret has {MIN_SECRET_LENGTH} to {MAX_SECRET_LENGTH} characters, this one {len(secret)}"
    if problem:
        remedy = "write one there, the same on every node: head -c 32 /dev/urandom | base64"
        return cluster, [source.problem(key_path, problem, remedy)]
    return replace(cluster, secret=secret, secret_file=file), []


def _read_secret_file(file: Path) -> tuple[str, str]:
    """What a file holds, without the end of its line; and what is wrong with it, if it cannot be used."""
    try:
        text = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        return "", f"{file}: {reason.lower()}"
    return text, "" if text else f"{file} is empty"
