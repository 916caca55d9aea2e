"""Passwords and secrets in files that every user of the machine can read."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from peerd.config.address import has_password
from peerd.config.problems import Problem
from peerd.config.reading.source import Place, Source
from peerd.config.settings import Settings


def secrets_for_everybody(settings: Settings, source: Source) -> Iterator[Problem]:
    """One problem for each secret that others can read."""
    for place, what, file in _secrets(settings, source):
        if is_readable_by_all(file):
            message = f"every user of this machine can read the {what} in {file}"
            yield source.problem(place, message, f"chmod o= {file}")


def is_readable_by_all(path: Path) -> bool:
    """Whether a file is there, and its mode lets all users read it; a folder above may keep them out until it moves."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _secrets(settings: Settings, source: Source) -> Iterator[tuple[Place, str, Path]]:
    """Where each is named, what it is, and the file that holds it."""
    database, cluster = settings.database, settings.cluster
    if database.password_file is not None:
        yield ("database", "password_file"), "password", database.password_file
    if cluster.secret_file is not None:
        yield ("cluster", "secret_file"), "secret", cluster.secret_file
    for name, hook in settings.alerts.items():
        if hook.mail is not None and hook.mail.password_file is not None:
            yield ("alerts", name, "mail", "password_file"), "password", hook.mail.password_file
    if settings.file is not None:
        for place, what in _in_the_file_itself(settings):
            if place[:2] not in source.overridden:
                yield place, what, settings.file


def _in_the_file_itself(settings: Settings) -> Iterator[tuple[Place, str]]:
    if settings.database.password_file is None and has_password(settings.database.url):
        yield ("database", "url"), "password"
    if settings.cluster.secret_file is None and settings.cluster.secret is not None:
        yield ("cluster", "secret"), "secret"
    for name, hook in settings.alerts.items():
        if hook.webhook is not None:
            yield ("alerts", name, "webhook"), "webhook's address, which whoever knows it can send to,"
