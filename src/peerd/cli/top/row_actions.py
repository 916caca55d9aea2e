"""What can be done to a row: the key, what it means, and the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from peerd.cli.output import pluralize
from peerd.cli.tasks.show import render_stack
from peerd.operate.client import Client


class TopAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action on the rows of one table.

    Attributes:
        key: that starts it.
        label: in the footer and in the question.
        effect: what will happen, in a sentence.
        call: does it to a row's key, with the text of the field.
        done: what was done, with ``{key}``, and ``{result}`` of the call; empty where the result is shown, unasked.
        field: what is to be typed, if anything is.
    """

    key: str
    label: str
    effect: str
    call: Callable[..., Any]
    done: str = ""
    field: str = ""

    def run(self, client: Client, key: str, text: str) -> Any:
        """Do it to a row's key, with the text that was typed, and return what was done."""
        result = self.call(client, key, text) if self.field else self.call(client, key)
        return self.done.format(key=key, result=result) if self.done else result


def _simple(group: str, key: str, label: str, effect: str, done: str) -> TopAction:
    """An action that is the method of its label."""

    def act(client: Client, row: str) -> None:
        getattr(getattr(client, group), label.lower())(int(row) if group == "tasks" else row)

    return TopAction(key=key, label=label, effect=effect, call=act, done=done)


def _move_task(client: Client, key: str, node: str) -> str:
    client.tasks.move(int(key), node or None)
    return f"{node} only" if node else "any node"


def _pause_queue(client: Client, key: str, duration: str) -> str:
    client.queues.pause(key, duration or None)
    return f"for {duration}" if duration else "until it is resumed"


def _kick_queue(client: Client, key: str) -> str:
    count = client.queues.kick(key)
    return f"{pluralize(count, 'task')} of {key} pending now" if count else f"no task of {key} is buried or delayed"


ACTIONS: Final[dict[str, tuple[TopAction, ...]]] = {
    "tasks": (
        _simple("tasks", "r", "Retry", "It becomes pending, with all its attempts.", "task {key} was retried"),
        _simple(
            "tasks", "c", "Cancel", "It runs no more; a handler that runs is cancelled.", "task {key} was canceled"
        ),
        _simple("tasks", "k", "Kick", "It is pending, if it was buried or delayed.", "task {key} was kicked"),
        _simple("tasks", "b", "Bury", "It is set aside until it is kicked or retried.", "task {key} was buried"),
        _simple("tasks", "d", "Delete", "Its row is deleted.", "task {key} was deleted"),
        TopAction(
            key="m",
            label="Move",
            effect="It runs on that node only; if it runs now, its attempt ends.",
            call=_move_task,
            done="task {key} may run on {result}",
            field="the name of a node; nothing: any node",
        ),
        TopAction(
            key="x",
            label="Stack",
            effect="Where the code of a running task is now.",
            call=lambda client, key: render_stack(client.tasks.stack(int(key)), client.now()),
        ),
    ),
    "queues": (
        TopAction(
            key="p",
            label="Pause",
            effect="Its tasks wait until it is resumed; those that run go on.",
            call=_pause_queue,
            done="queue {key} is paused {result}",
            field="1h or 30m; nothing: until it is resumed",
        ),
        _simple("queues", "u", "Resume", "Its tasks are claimed again.", "queue {key} is open"),
        TopAction(
            key="k",
            label="Kick",
            effect="Its tasks that are buried, or else those that wait for their time, become pending.",
            call=_kick_queue,
            done="{result}",
        ),
    ),
    "nodes": (
        _simple("nodes", "d", "Drain", "It ends what it runs; it claims no more.", "node {key} claims no more tasks"),
        _simple("nodes", "u", "Undrain", "It claims tasks again.", "node {key} claims tasks again"),
        _simple("nodes", "f", "Forget", "Its row is deleted; it must have stopped.", "node {key} is forgotten"),
    ),
    "alerts": (),
}
"""The actions of each table."""
