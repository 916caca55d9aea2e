"""The tasks of `bench.peers.django_tasks`: declared in a module that is imported when Django is set up."""

from __future__ import annotations

from django_tasks import task

from bench.peers import contract


@task
def noop() -> None:
    """Count."""
    contract.noop()


@task
def note(number: int) -> None:
    """Note."""
    contract.note(number)
