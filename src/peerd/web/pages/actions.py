"""What can be done on pages: each action is declared once, and has a button, a page that confirms it, and a handler.

A button is a link to the page that confirms; the script of the pages shows that page as a dialog. So an action needs
two clicks and no JavaScript, and no request that changes anything comes without a form that was shown to its viewer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from peerd.domain.access import Actor, Right
from peerd.operate.client import AioClient
from peerd.web.pages.subjects import Subject

MOST_TEXT: Final = 2_000
"""Characters of a field that has no other bound."""
FieldKind: TypeAlias = Literal["text", "long", "number", "duration", "choice", "switch", "password", "hidden"]


class FormField(msgspec.Struct, frozen=True, kw_only=True):
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


class ActionCall(msgspec.Struct, frozen=True):
    """One use of an action: on what, by which client, and with what was typed."""

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


class PageAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action on one subject.

    Attributes:
        verb: the last part of its path.
        label: of its button, as a command: "Retry".
        effect: what happens, in a sentence that is shown before; `{key}` stands for what it acts on.
        warning: gives a further sentence, by the present state.
        right: what the client asks for: a viewer without it sees no button.
        run: does it.
        fields: what is asked for, which may depend on the present state.
        creates: it makes a new one, and acts on none.
        needs_all_queues: an actor that is restricted to queues may not do it.
        is_destructive: it cannot be taken back.
    """

    subject: Subject
    verb: str
    label: str
    effect: str
    run: Callable[[ActionCall], Awaitable[ActionDone]]
    right: Right = Right.OPERATE
    warning: Callable[[ActionCall], Awaitable[str]] | None = None
    fields: tuple[FormField, ...] | FieldsOf = ()
    creates: bool = False
    needs_all_queues: bool = False
    is_destructive: bool = False

    @property
    def id(self) -> str:
        """Its name among all: ``tasks.retry``."""
        return f"{self.subject}.{self.verb}"

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
        """What it asks for."""
        return self.fields if isinstance(self.fields, tuple) else await self.fields(call)


class ActionRegistry:
    """All actions of the pages, by subject and verb."""

    def __init__(self, *actions: PageAction) -> None:
        self._actions = {(action.subject, action.verb): action for action in actions}
        if len(self._actions) != len(actions):
            raise ValueError("two actions have the same address")

    def __iter__(self) -> Iterator[PageAction]:
        return iter(self._actions.values())

    def find(self, subject: Subject, verb: str) -> PageAction | None:
        """The action of an address."""
        return self._actions.get((subject, verb))

    def of(self, subject: Subject, actor: Actor, *verbs: str) -> list[PageAction]:
        """Those of a subject that an actor may do; with verbs, these in this order."""
        found = [self._actions[subject, verb] for verb in verbs] if verbs else list(self)
        return [action for action in found if action.subject is subject and action.is_for(actor)]
