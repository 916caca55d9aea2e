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
        call: does it to a row's key.
        done: what was done, with ``{key}``, and ``{result}`` of the call.
    """

    key: str
    label: str
    effect: str
    call: Callable[[Client, str], object]
    done: str

    def run(self, client: Client, key: str) -> str:
        """Do it to a row's key, and return what was done."""
        return self.done.format(key=key, result=self.call(client, key))


def _kick_queue(client: Client, key: str) -> str:
    count = client.queues.kick(key)
    return f"{pluralize(count, 'task')} of {key} pending now" if count else f"no task of {key} is buried or delayed"


ACTIONS: Final[dict[str, tuple[TopAction, ...]]] = {
    "tasks": (
        TopAction(
            key="r",
            label="Retry",
            effect="It becomes pending, with all its attempts.",
            call=lambda client, key: client.tasks.retry(int(key)),
            done="task {key} was retried",
        ),
        TopAction(
            key="c",
            label="Cancel",
            effect="It does not run any more; a handler that runs is cancelled.",
            call=lambda client, key: client.tasks.cancel(int(key)),
            done="task {key} was canceled",
        ),
        TopAction(
            key="k",
            label="Kick",
            effect="It becomes pending, if it is buried or waits for its time.",
            call=lambda client, key: client.tasks.kick(int(key)),
            done="task {key} was kicked",
        ),
        TopAction(
            key="b",
            label="Bury",
            effect="It is set aside until it is kicked or retried.",
            call=lambda client, key: client.tasks.bury(int(key)),
            done="task {key} was buried",
        ),
        TopAction(
            key="d",
            label="Delete",
            effect="Its row is deleted.",
            call=lambda client, key: client.tasks.delete(int(key)),
            done="task {key} was deleted",
        ),
    ),
    "queues": (
        TopAction(
            key="p",
            label="Pause",
            effect="Its tasks wait until it is resumed; those that run go on.",
            call=lambda client, key: client.queues.pause(key),
            done="queue {key} is paused",
        ),
        TopAction(
            key="u",
            label="Resume",
            effect="Its tasks are claimed again.",
            call=lambda client, key: client.queues.resume(key),
            done="queue {key} is open",
        ),
        TopAction(
            key="k",
            label="Kick",
            effect="Its tasks that are buried, or else those that wait for their time, become pending.",
            call=_kick_queue,
            done="{result}",
        ),
    ),
    "nodes": (
        TopAction(
            key="d",
            label="Drain",
            effect="It finishes what it runs, and claims no more.",
            call=lambda client, key: client.nodes.drain(key),
            done="node {key} claims no more tasks",
        ),
        TopAction(
            key="u",
            label="Undrain",
            effect="It claims tasks again.",
            call=lambda client, key: client.nodes.undrain(key),
            done="node {key} claims tasks again",
        ),
        TopAction(
            key="f",
            label="Forget",
            effect="Its row is deleted; only a node that has stopped can be forgotten.",
            call=lambda client, key: client.nodes.forget(key),
            done="node {key} is forgotten",
        ),
    ),
    "alerts": (),
}
"""Of each table."""
