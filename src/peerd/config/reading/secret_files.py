"""Passwords and secrets in files that every user of the machine can read."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from peerd.config.address import has_password
from peerd.config.problems import Problem
from peerd.config.reading.source import ConfigSource, KeyPath
from peerd.config.settings import Settings


def find_readable_secrets(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """One problem for each secret that others can read."""
    for key_path, what, file in _secret_locations(settings, source):
        if is_world_readable(file):
            message = f"every user of this machine can read the {what} in {file}"
            yield source.problem(key_path, message, f"chmod o= {file}")


def is_world_readable(path: Path) -> bool:
    """Whether a file is there, and its mode lets all users read it; a folder above may keep them out until it moves."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _secret_locations(settings: Settings, source: ConfigSource) -> Iterator[tuple[KeyPath, str, Path]]:
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
        for key_path, what in _inline_secrets(settings):
            if key_path[:2] not in source.overridden:
                yield key_path, what, settings.file


def _inline_secrets(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    if settings.database.password_file is None and has_password(settings.database.url):
        yield ("database", "url"), "password"
    if settings.cluster.secret_file is None and settings.cluster.secret is not None:
        yield ("cluster", "secret"), "secret"
    for name, hook in settings.alerts.items():
        if hook.webhook is not None:
            yield ("alerts", name, "webhook"), "webhook's address, which whoever knows it can send to,"
