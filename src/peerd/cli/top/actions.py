"""What can be done to a row: the key, what it means, and the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from peerd.cli.output.formatting import pluralize
from peerd.operate.client import Client


class TopAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action on the rows of one table.

    Attributes:
        key: that starts it.
        label: in the footer and in the question.
        effect: what will happen, in a sentence.
        run: does it to a row's key, and returns what was done.
    """

    key: str
    label: str
    effect: str
    run: Callable[[Client, str], str]


def _on_task(verb: str, past: str) -> Callable[[Client, str], str]:
    def run(client: Client, key: str) -> str:
        getattr(client.tasks, verb)(int(key))
        return f"task {key} was {past}"

    return run


def _on_queue(verb: str, past: str) -> Callable[[Client, str], str]:
    def run(client: Client, key: str) -> str:
        getattr(client.queues, verb)(key)
        return f"queue {key} is {past}"

    return run


def _kick_queue(client: Client, key: str) -> str:
    count = client.queues.kick(key)
    return f"{pluralize(count, 'task')} of {key} pending now" if count else f"no task of {key} is buried or delayed"


def _on_node(verb: str, past: str) -> Callable[[Client, str], str]:
    def run(client: Client, key: str) -> str:
        getattr(client.nodes, verb)(key)
        return f"node {key} {past}"

    return run


ACTIONS: Final[dict[str, tuple[TopAction, ...]]] = {
    "tasks": (
        TopAction(
            key="r",
            label="Retry",
            effect="It becomes pending, with all its attempts.",
            run=_on_task("retry", "retried"),
        ),
        TopAction(
            key="c",
            label="Cancel",
            effect="It does not run any more; a handler that runs is cancelled.",
            run=_on_task("cancel", "canceled"),
        ),
        TopAction(
            key="k",
            label="Kick",
            effect="It becomes pending, if it is buried or waits for its time.",
            run=_on_task("kick", "kicked"),
        ),
        TopAction(
            key="b",
            label="Bury",
            effect="It is set aside until it is kicked or retried.",
            run=_on_task("bury", "buried"),
        ),
        TopAction(key="d", label="Delete", effect="Its row is deleted.", run=_on_task("delete", "deleted")),
    ),
    "queues": (
        TopAction(
            key="p",
            label="Pause",
            effect="Its tasks wait until it is resumed; those that run go on.",
            run=_on_queue("pause", "paused"),
        ),
        TopAction(key="u", label="Resume", effect="Its tasks are claimed again.", run=_on_queue("resume", "open")),
        TopAction(
            key="k",
            label="Kick",
            effect="Its tasks that are buried, or else those that wait for their time, become pending.",
            run=_kick_queue,
        ),
    ),
    "nodes": (
        TopAction(
            key="d",
            label="Drain",
            effect="It finishes what it runs, and claims no more.",
            run=_on_node("drain", "claims no more tasks"),
        ),
        TopAction(
            key="u",
            label="Undrain",
            effect="It claims tasks again.",
            run=_on_node("undrain", "claims tasks again"),
        ),
        TopAction(
            key="f",
            label="Forget",
            effect="Its row is deleted; only a node that has stopped can be forgotten.",
            run=_on_node("forget", "is forgotten"),
        ),
    ),
    "alerts": (),
}
"""Of each table."""
