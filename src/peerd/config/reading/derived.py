"""Settle what depends on the place of the file and on other settings: paths, the password, derived defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from peerd.config.address import add_password, has_password, is_sqlite, locate_sqlite_file
from peerd.config.problems import Problem
from peerd.config.reading.source import Source
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
from peerd.domain.bind_address import Unix, parse_binding

SHORTEST_SECRET, LONGEST_SECRET = 16, 1000
"""Characters."""


def settle(document: Document, source: Source) -> tuple[Settings, list[Problem]]:
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


def _with_run_directory(node: NodeSettings, source: Source) -> NodeSettings:
    given = node.run_directory if source.gives("node", "run_directory") else node.run_directory / node.name
    return replace(node, run_directory=source.folder / given.expanduser())


def _with_absolute_file(logging: LoggingSettings, folder: Path) -> LoggingSettings:
    file = logging.file
    return logging if file is None else replace(logging, file=folder / file.expanduser())


def _with_inactive_after(manager: ManagerSettings, node: NodeSettings, source: Source) -> ManagerSettings:
    if source.gives("manager", "inactive_after"):
        return manager
    return replace(manager, inactive_after=2 * node.heartbeat_every)


def _with_absolute_paths(database: DatabaseSettings, folder: Path) -> DatabaseSettings:
    file = database.password_file
    return replace(
        database,
        url=locate_sqlite_file(database.url, folder),
        password_file=None if file is None else folder / file.expanduser(),
    )


def _with_absolute_password_file(hook: AlertSettings, folder: Path) -> AlertSettings:
    if hook.mail is None or hook.mail.password_file is None:
        return hook
    file = folder / hook.mail.password_file.expanduser()
    return replace(hook, mail=replace(hook.mail, password_file=file))


def _mail_problems(settings: Settings, source: Source) -> Iterator[Problem]:
    """A password that cannot be read is found out now, and not with the first alert. It is read anew for each mail."""
    for name, hook in settings.alerts.items():
        mail = hook.mail
        if mail is None or mail.password_file is None:
            continue
        place = ("alerts", name, "mail", "password_file")
        if mail.user is None and source.tells(("alerts", name, "mail", "user")):
            yield source.problem(place, "there is a password, and no user that it belongs to", "give mail.user too")
        if not mail.password_file.is_file():
            yield source.problem(place, f"{mail.password_file}: there is no such file", "write the password there")


def _with_absolute_sockets(web: WebSettings, folder: Path) -> WebSettings:
    """Paths of unix sockets are meant from the project folder, as all paths are."""
    return replace(web, bind=tuple(_with_absolute_socket(bind, folder) for bind in web.bind))


def _with_absolute_socket(bind: str, folder: Path) -> str:
    match parse_binding(bind):
        case Unix(path):
            return f"unix:{folder / path}"
        case _:
            return bind


def _with_password(database: DatabaseSettings, source: Source) -> tuple[DatabaseSettings, list[Problem]]:
    place = ("database", "password_file")
    file = database.password_file
    if file is None or not source.tells(("database", "url")):
        return database, []
    if is_sqlite(database.url):
        return database, [source.problem(place, "SQLite has no password", "take it out")]
    if has_password(database.url):
        return database, [source.problem(place, "the url holds a password already", "keep one of them")]
    password, problem = _text_of(file)
    if problem:
        return database, [source.problem(place, problem, "write the password there, and nothing else")]
    return replace(database, url=add_password(database.url, password)), []


def _with_secret(cluster: ClusterSettings, source: Source) -> tuple[ClusterSettings, list[Problem]]:
    place = ("cluster", "secret_file")
    if cluster.secret_file is None:
        return cluster, []
    file = source.folder / cluster.secret_file.expanduser()
    if cluster.secret is not None:
        return cluster, [source.problem(place, "there is a secret already", "keep one of them")]
    secret, problem = _text_of(file)
    if not problem and not SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET:
        problem = f"{file}: a secret has {SHORTEST_SECRET} to {LONGEST_SECRET} characters, this one {len(secret)}"
    if problem:
        remedy = "write one there, the same on every node: head -c 32 /dev/urandom | base64"
        return cluster, [source.problem(place, problem, remedy)]
    return replace(cluster, secret=secret, secret_file=file), []


def _text_of(file: Path) -> tuple[str, str]:
    """What a file holds, without the end of its line; and what is wrong with it, if it cannot be used."""
    try:
        text = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        return "", f"{file}: {reason.lower()}"
    return text, "" if text else f"{file} is empty"
