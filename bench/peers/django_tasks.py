"""django-tasks-db on MySQL, MariaDB or PostgreSQL: its `db_worker`, which runs one task after the other."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import django  # type: ignore[import-untyped]
from django.conf import settings  # type: ignore[import-untyped]

from bench.peers import contract

BACKENDS: Final = {"mysql": "django.db.backends.mysql", "postgresql": "django.db.backends.postgresql"}


class Measured(contract.PeerQueue):
    """django-tasks-db: ``at_once`` means nothing to it."""

    distribution = "django-tasks-db"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        address = urlsplit(url)
        database = {
            "ENGINE": BACKENDS[address.scheme.partition("+")[0]],
            "NAME": address.path.strip("/"),
            "HOST": address.hostname,
            "PORT": address.port,
            "USER": address.username,
        }
        if not settings.configured:
            settings.configure(
                DATABASES={"default": database},
                INSTALLED_APPS=["django_tasks", "django_tasks_db"],
                TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
                LOGGING_CONFIG=None,
                USE_TZ=True,
            )
            django.setup()
        import bench.peers.django_tasks_declared as declared  # noqa: PLC0415 - it needs the settings

        self._declared: Any = declared

    def prepare(self) -> None:
        """Migrate, and empty the table."""
        from django.core.management import call_command  # type: ignore[import-untyped]  # noqa: PLC0415 - it needs the settings

        call_command("migrate", verbosity=0)
        self._results().delete()

    def enqueue_singly(self, number: int) -> None:
        """`enqueue`, again and again."""
        for _ in range(number):
            self._declared.noop.enqueue()

    def enqueue_together(self, number: int) -> None:
        """In one transaction; it has no call for many."""
        from django.db.transaction import atomic  # type: ignore[import-untyped]  # noqa: PLC0415 - it needs the settings

        with atomic():
            self.enqueue_singly(number)

    def enqueue_note(self, number: int) -> None:
        """`enqueue`."""
        self._declared.note.enqueue(number)

    def left(self) -> int:
        """Tasks that have not succeeded."""
        return int(self._results().exclude(status="SUCCESSFUL").count())

    def work(self, at_once: int) -> None:
        """Its command, without the pause that spreads several workers."""
        from django.core.management import call_command  # noqa: PLC0415 - it needs the settings

        call_command("db_worker", startup_delay=False, verbosity=0)

    def _results(self) -> Any:
        from django_tasks_db.models import DBTaskResult  # noqa: PLC0415 - it needs the settings

        return DBTaskResult.objects.all()
