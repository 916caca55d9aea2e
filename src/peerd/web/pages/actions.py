"""What can be done on pages: each action is declared once, and has a button, a page that confirms it, and a form.

An action is an operation of the client: who may do it is what the operation needs, its arguments are the fields of the
form, and what is said afterwards is a sentence with their values. An action that is more than that has a function.

A button is a link to the page that confirms; the script of the pages shows that page as a dialog. So an action needs
two clicks and no JavaScript, and no request that changes anything comes without a form that was shown to its viewer.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

import msgspec

from peerd.domain.access import Actor, Right
from peerd.domain.errors import InvalidTask
from peerd.domain.task import JSON_EXAMPLE
from peerd.operate.client import AioClient
from peerd.operate.wire.operations import wire_operations
from peerd.web.pages.addresses import Subject
from peerd.web.pages.formats import one_line

MOST_TEXT: Final = 2_000
"""Characters of a field that has no other bound."""
FieldKind: TypeAlias = Literal["text", "long", "number", "duration", "choice", "switch", "password", "hidden"]


class FormField(msgspec.Struct, frozen=True):
    """An input of a form.

    Attributes:
        choices: value and label of each; of a `choice`.
        value: what it holds at first.
        hint: stands below it.
        most: characters at the most.
        autocomplete: what a browser or a password manager may fill in, of the HTML standard's autofill field names.
    """

    name: str
    label: str
    kind: FieldKind = "text"
    value: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    hint: str = ""
    is_required: bool = False
    most: int = MOST_TEXT
    autocomplete: str = "off"

    def argument(self, values: Mapping[str, str]) -> str | int | None:
        """What was typed, as an operation takes it; None if nothing was, and nothing had to be. Raises InvalidTask."""
        given = values.get(self.name, "")
        text = given if self.kind == "password" else given.strip()
        if not (text or self.is_required):
            return None
        return whole_number(self.name, text) if self.kind == "number" else text


class ActionCall(msgspec.Struct, frozen=True):
    """A use of an action: on what, by which client, and with what was typed."""

    client: AioClient
    key: str
    values: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """What was typed into a field; None if nothing was."""
        return self.values.get(name, "").strip() or None

    def is_on(self, name: str) -> bool:
        """Whether a switch was on."""
        return name in self.values


class ActionDone(msgspec.Struct, frozen=True):
    """What an action has done.

    Attributes:
        notice: a sentence for its viewer.
        address: the page to go to; None: where the viewer came from.
        undo: the address of the action that takes it back, filled in; None if none does.
    """

    notice: str
    address: str | None = None
    undo: str | None = None


FieldsOf: TypeAlias = Callable[[ActionCall], Awaitable[tuple[FormField, ...]]]


class PageAction(msgspec.Struct, frozen=True):
    """An action on one subject.

    In `effect` and `notice`, `{key}` stands for what the action acts on, and in `notice` the name of a field for what
    was typed. In `leads_to`, `{page}` stands for the page of what it acts on, and `{result}` for what the operation has
    returned.

    Attributes:
        id: its name among all, of its subject and the last part of its path: ``tasks.retry``.
        label: of its button, as a command: "Retry".
        effect: what happens, in a sentence that is shown before.
        operation: the name of the operation of the client, if it is another one than its own.
        fields: what is asked for, which may depend on the present state.
        arguments: what the operation gets where no field gives it.
        notice: a sentence that is shown afterwards, or what makes it of the call and the result.
        leads_to: the page to go to afterwards; empty: where the viewer came from.
        undo: the verb of the action that takes it back.
        run: does it, where it is more than a call of the operation.
        warning: gives a further sentence to be shown before, by the present state.
        creates: it makes a new one, and acts on none.
        is_destructive: it cannot be taken back.
    """

    id: str
    label: str
    effect: str
    operation: str = ""
    fields: tuple[FormField, ...] | FieldsOf = ()
    arguments: dict[str, object] = {}
    notice: str | Callable[[ActionCall, Any], str] = ""
    leads_to: str = ""
    undo: str = ""
    run: Callable[[ActionCall], Awaitable[ActionDone]] | None = None
    warning: Callable[[ActionCall], Awaitable[str]] | None = None
    creates: bool = False
    is_destructive: bool = False

    @property
    def subject(self) -> Subject:
        """What the action is about."""
        return Subject(self.id.partition(".")[0])

    @property
    def verb(self) -> str:
        """The last part of its path."""
        return self.id.partition(".")[2]

    @property
    def right(self) -> Right:
        """What the operation needs: a viewer without it sees no button."""
        return wire_operations()[self.operation or self.id].operation.needs or Right.OPERATE

    @property
    def needs_all_queues(self) -> bool:
        """Whether an actor that is restricted to queues may not do it."""
        return not wire_operations()[self.operation or self.id].operation.in_queues

    @property
    def route(self) -> str:
        """The path of its page, with a place for an id."""
        has_id = self.subject.has_id and not self.creates
        return f"/{self.subject}/{{key:id}}/{self.verb}" if has_id else f"/{self.subject}/{self.verb}"

    def address(self, key: str | int = "") -> str:
        """The address of its page for one subject."""
        return self.route if self.creates else self.subject.action(key, self.verb)

    def is_for(self, actor: Actor) -> bool:
        """Whether an actor may do it, as far as that does not depend on what it acts on."""
        return actor.may(self.right) and not (self.needs_all_queues and actor.queues is not None)

    async def fields_of(self, call: ActionCall) -> tuple[FormField, ...]:
        """What the form of the action asks for."""
        return self.fields if isinstance(self.fields, tuple) else await self.fields(call)

    async def do(self, call: ActionCall) -> ActionDone:
        """Do it: an optional field into which nothing was typed is no argument."""
        if self.run is not None:
            return await self.run(call)
        values = {field.name: field.argument(call.values) for field in await self.fields_of(call)}
        typed = {name: value for name, value in values.items() if value is not None}
        key = [] if self.creates else [int(call.key) if self.subject.has_id else call.key]
        result = await attrgetter(self.operation or self.id)(call.client)(*key, **(self.arguments | typed))
        shown = {name: one_line(value) for name, value in (typed | {"key": call.key}).items()}
        notice = self.notice.format(**shown) if isinstance(self.notice, str) else self.notice(call, result)
        undo = self.subject.action(call.key, self.undo) if self.undo else None
        page = self.subject.page(call.key)
        return ActionDone(notice, self.leads_to.format(page=page, result=result) or None, undo)


class ActionRegistry:
    """All actions of the pages, by their names."""

    def __init__(self, *actions: PageAction) -> None:
        self._actions = {action.id: action for action in actions}
        if len(self._actions) != len(actions):
            raise ValueError("two actions have the same name")

    def __iter__(self) -> Iterator[PageAction]:
        return iter(self._actions.values())

    def of(self, subject: Subject, actor: Actor, *verbs: str) -> list[PageAction]:
        """The actions on a subject that an actor may do; with verbs, these in this order."""
        found = [self._actions[f"{subject}.{verb}"] for verb in verbs] if verbs else list(self)
        return [action for action in found if action.subject is subject and action.is_for(actor)]


def whole_number(field: str, text: str) -> int:
    """The number of a field; raises `InvalidTask`."""
    try:
        return int(text)
    except ValueError:
        raise InvalidTask(field, f"{one_line(text, 40)!r} is not a whole number") from None


def json_value(field: str, text: str) -> Any:
    """The value of a JSON text; raises `InvalidTask`, which names the place."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidTask(field, f"it is no JSON: {error}; such as {JSON_EXAMPLE}") from None
