"""Settle what depends on the place of the file and on other settings: paths, the password, derived defaults."""

from __future__ import annotations

from pathlib import Path

from peerd.config.address import add_password, has_password, is_sqlite, locate_sqlite_file
from peerd.config.problems import Problem
from peerd.config.settings import DatabaseSettings, Document, LoggingSettings, ManagerSettings, NodeSettings, Settings
from peerd.config.source import Source


def settle(document: Document, source: Source) -> tuple[Settings, list[Problem]]:
    """The settings with absolute paths and the database's password, and what went wrong with the password."""
    database, problems = _with_password(_with_absolute_paths(document.database, source.folder), source)
    settings = Settings(
        project_directory=source.folder,
        file=source.file,
        node=_with_run_directory(document.node, source.folder),
        database=database,
        workers=document.workers,
        commands=document.commands,
        manager=_with_inactive_after(document.manager, document.node),
        logging=_with_absolute_file(document.logging, source.folder),
    )
    return settings, problems


def _with_run_directory(node: NodeSettings, folder: Path) -> NodeSettings:
    given = node.run_directory if "run_directory" in node.model_fields_set else node.run_directory / node.name
    return node.model_copy(update={"run_directory": folder / given.expanduser()})


def _with_absolute_file(logging: LoggingSettings, folder: Path) -> LoggingSettings:
    file = logging.file
    return logging if file is None else logging.model_copy(update={"file": folder / file.expanduser()})


def _with_inactive_after(manager: ManagerSettings, node: NodeSettings) -> ManagerSettings:
    if "inactive_after" in manager.model_fields_set:
        return manager
    return manager.model_copy(update={"inactive_after": 2 * node.heartbeat_every})


def _with_absolute_paths(database: DatabaseSettings, folder: Path) -> DatabaseSettings:
    file = database.password_file
    return database.model_copy(
        update={
            "url": locate_sqlite_file(database.url, folder),
            "password_file": None if file is None else folder / file.expanduser(),
        },
    )


def _with_password(database: DatabaseSettings, source: Source) -> tuple[DatabaseSettings, list[Problem]]:
    place = ("database", "password_file")
    file = database.password_file
    if file is None:
        return database, []
    if is_sqlite(database.url):
        return database, [source.problem(place, "SQLite has no password", "take it out")]
    if has_password(database.url):
        return database, [source.problem(place, "the url holds a password already", "keep one of them")]
    try:
        password = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        return database, [
            source.problem(place, f"{file}: {reason.lower()}", "write the password there, and nothing else")
        ]
    if not password:
        return database, [source.problem(place, f"{file} is empty", "write the password there, and nothing else")]
    return database.model_copy(update={"url": add_password(database.url, password)}), []
