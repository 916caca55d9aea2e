"""Actions on many tasks: on a selection at once, or on all that a filter finds, as a bulk action."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from peerd.domain.access import Right
from peerd.domain.bulk import (
    RESTRICTED_TO,
    BulkBury,
    BulkCancel,
    BulkChange,
    BulkDelete,
    BulkKick,
    BulkMove,
    BulkMoveToQueue,
    BulkRetry,
    BulkSnooze,
    TaskAction,
    action_tag,
)
from peerd.domain.errors import InvalidFilter, InvalidTask, NodeNotFound, NotPermitted, PeerdError
from peerd.domain.lifecycle import IllegalTransition, Status, sources
from peerd.domain.units import parse_duration
from peerd.operate.task_filter import TaskFilter
from peerd.web.pages.actions import ActionCall, FormField, whole_number
from peerd.web.pages.addresses import Subject, UrlQuery, safe_path
from peerd.web.pages.forms import BACK, leave_notice
from peerd.web.pages.rendering import PageRequest, status_with
from peerd.web.pages.routes.tasks import FILTER_NAMES, read_address
from peerd.web.pages.task_actions import (
    DURATION,
    EVENT_OF,
    QUEUE,
    REASON,
    TASK_ACTIONS,
    node_fields,
)

MOST_SELECTED: Final = 200
"""Tasks of one selection: the rows of the largest page."""
PREVIEW_TIME: Final = 0.1
"""Seconds that a page waits for a count; the bulk action itself counts all."""
MOST_SHOWN: Final = 5
"""Refusals of single tasks that are named."""
PRIORITY: Final = FormField("priority", "Priority", kind="number", is_required=True)
ALL_TASKS: Final = FormField("all_tasks", "I mean all tasks", kind="switch", hint="The filter has no conditions.")
TO_QUEUE: Final = msgspec.structs.replace(QUEUE, name="to_queue", label="To the queue")
FIELDS: Final[dict[str, tuple[FormField, ...]]] = {
    "cancel": (REASON,),
    "snooze": (DURATION,),
    "requeue": (TO_QUEUE,),
    "change": (PRIORITY,),
}
"""What each action asks for, beside the node of a move. None has the name of a field of the filter in the same form."""
MAKERS: Final[dict[str, Callable[[Mapping[str, str]], TaskAction]]] = {
    "retry": lambda _: BulkRetry(),
    "cancel": lambda given: BulkCancel(given.get("reason", "").strip() or "canceled by hand"),
    "snooze": lambda given: BulkSnooze(_seconds(given.get("duration", ""))),
    "move": lambda given: BulkMove(given.get("to_node", "").strip() or None),
    "requeue": lambda given: BulkMoveToQueue(given.get("to_queue", "").strip()),
    "change": lambda given: BulkChange(priority=whole_number("priority", given.get("priority", ""))),
    "kick": lambda _: BulkKick(),
    "bury": lambda _: BulkBury(),
    "delete": lambda _: BulkDelete(),
}
LABELS: Final = {action.verb: action.label for action in TASK_ACTIONS if action.verb in MAKERS} | {
    "change": "Change the priority"
}


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidTask("duration", str(error)) from None


async def confirm_selection(page: PageRequest, fields: list[tuple[str, str]]) -> Response:
    """Say what happens to the tasks that are selected, and ask for what the action needs."""
    if not page.actor.may(Right.OPERATE):
        raise NotPermitted(page.actor.name, "tasks.selection", f"it needs the right {Right.OPERATE}")
    given, ids = dict(fields), _ids(fields)
    verb = given.get("verb", "")
    back = safe_path(given.get(BACK)) or "/tasks"
    if verb not in MAKERS or not ids:
        response = page.redirect(back)
        leave_notice(response, "Nothing was done: select tasks first.")
        return response
    return await _selection_form(page, verb, ids, back, {})


async def act_on_selection(page: PageRequest, fields: list[tuple[str, str]]) -> Response:
    """Do it to one after another: what cannot be done to one does not keep it from the others."""
    given, ids = dict(fields), _ids(fields)
    verb, back = given.get("verb", ""), safe_path(given.get(BACK)) or "/tasks"
    try:
        action = MAKERS[verb](given) if verb in MAKERS else None
    except PeerdError as error:
        return await _selection_form(page, verb, ids, back, given, str(error))
    response = page.redirect(back)
    if action is None:
        return response
    done, refused = 0, []
    for task_id in ids:
        try:
            await _act(page, task_id, action)
            done += 1
        except PeerdError as error:
            refused.append(f"{task_id}: {error}")
    text = f"{LABELS[verb]}: {done} of {len(ids)} {'task' if len(ids) == 1 else 'tasks'}."
    leave_notice(response, f"{text} Not done: {'; '.join(refused[:MOST_SHOWN])}" if refused else text)
    return response


async def _act(page: PageRequest, task_id: int, action: TaskAction) -> None:
    """Call the operation on one task that has the name and the arguments of the action."""
    if isinstance(action, BulkChange):
        await page.client.tasks.change(task_id, priority=action.priority)
    else:
        await getattr(page.client.tasks, action_tag(action))(task_id, *msgspec.structs.astuple(action))


async def _selection_form(
    page: PageRequest, verb: str, ids: list[int], back: str, values: Mapping[str, str], problem: str | None = None
) -> Response:
    return page.render(
        "selection.html",
        f"{LABELS[verb]}: {len(ids)} tasks",
        status_with(problem),
        verb=verb,
        label=LABELS[verb],
        ids=ids,
        fields=await _fields(page, verb),
        values=values,
        problem=problem,
        back=back,
    )


def _ids(fields: list[tuple[str, str]]) -> list[int]:
    given = [value for name, value in fields if name == "id"]
    return [int(one) for one in dict.fromkeys(given) if one.isascii() and one.isdecimal() and len(one) < 20][
        :MOST_SELECTED
    ]


async def _fields(page: PageRequest, verb: str) -> tuple[FormField, ...]:
    if verb != "move":
        return FIELDS.get(verb, ())
    [node] = await node_fields(ActionCall(page.client, "", {}))
    return (msgspec.structs.replace(node, name="to_node", label="To the node"),)


# ---------------------------------------------------------------- all that a filter finds


async def new_bulk(page: PageRequest) -> Response:
    """Choose an action for all tasks of a filter, and see how many it is for."""
    chosen = page.query.get("verb")
    return await _bulk_form(page, page.query, chosen if chosen in MAKERS else _likely_verb(page.query), {})


def _likely_verb(query: UrlQuery) -> str:
    """The first action that the status of the filter allows."""
    wanted = query.get("status")
    if wanted not in set(Status):
        return "retry"
    return next(verb for verb in MAKERS if wanted in sources(EVENT_OF[verb]))


async def create_bulk(page: PageRequest, fields: list[tuple[str, str]]) -> Response:
    """Begin the bulk action that was previewed, on those tasks alone."""
    given = dict(fields)
    query = UrlQuery(tuple((name, value) for name, value in fields if name in {*FILTER_NAMES, "where"}))
    verb = given.get("verb", "")
    if verb not in MAKERS or "preview" in given:
        return await _bulk_form(page, query, verb if verb in MAKERS else _likely_verb(query), given)
    wanted, is_all = read_address(query).filter, "all_tasks" in given
    try:
        made = await page.client.bulk.create(
            MAKERS[verb](given), wanted, digest=given.get("digest") or None, all_tasks=is_all
        )
    except (InvalidFilter, InvalidTask, IllegalTransition, NodeNotFound) as error:
        return await _bulk_form(page, query, verb, given, str(error))
    response = page.redirect(Subject.BULK.page(made.id))
    leave_notice(response, f"Bulk action {made.id} has begun.")
    return response


async def _bulk_form(
    page: PageRequest, query: UrlQuery, verb: str, values: Mapping[str, str], problem: str | None = None
) -> Response:
    wanted = read_address(query).filter
    has_conditions = wanted != TaskFilter()
    preview = None
    try:
        action = MAKERS[verb](_defaults(page, verb))  # for which tasks it is does not depend on what is asked for
        preview = await page.client.bulk.preview(action, wanted, all_tasks=True, within=PREVIEW_TIME)
    except (InvalidFilter, InvalidTask, IllegalTransition, NodeNotFound) as error:
        problem = problem or str(error)
    fields = await _fields(page, verb)
    return page.render(
        "bulk_new.html",
        "Bulk action",
        status_with(problem),
        filter_query=query.with_mapping(dict.fromkeys(("verb", "preview"))),
        conditions=_in_words(msgspec.structs.asdict(wanted)),
        verb=verb,
        labels=LABELS,
        fields=fields if has_conditions else (*fields, ALL_TASKS),
        values=values,
        preview=preview,
        problem=problem,
    )


def _defaults(page: PageRequest, verb: str) -> dict[str, str]:
    own_queue = next(iter(page.actor.queues or ()), "queue")
    defaults = {"requeue": {"to_queue": own_queue}, "change": {"priority": "0"}}.get(verb, {})
    return {field.name: field.value for field in FIELDS.get(verb, ())} | defaults


def _in_words(fields: Mapping[str, Any]) -> list[str]:
    """The conditions of a filter, one by one."""
    alone = [f"{name} {value}" for name, value in fields.items() if value and isinstance(value, str)]
    return [*alone, *(f"queue {queue}" for queue in fields.get(RESTRICTED_TO, ())), *(fields.get("where") or ())]


async def show_bulks(page: PageRequest) -> Response:
    """The newest bulk actions."""
    bulks = await page.read("bulk actions", lambda: page.client.bulk.list(limit=100))
    return page.render("bulks.html", "Bulk actions", bulks=bulks, live="type=queue")


async def show_bulk(page: PageRequest) -> Response:
    """How far one is."""
    bulk_id: int = page.request.path_params["key"]
    bulk = await page.read(("bulk", bulk_id), lambda: page.client.bulk.get(bulk_id))
    has_manager = bulk.has_ended or await page.read("has manager", page.client.bulk.has_manager)
    verbs = ("resume" if bulk.state == "paused" else "pause", "cancel")
    return page.render(
        "bulk.html",
        f"Bulk action {bulk_id}",
        bulk=bulk,
        arguments={
            name: value for name, value in json.loads(msgspec.json.encode(bulk.action)).items() if name != "type"
        },
        conditions=_in_words(bulk.filter),
        actions=[] if bulk.has_ended else page.actions.of(Subject.BULK, page.actor, *verbs),
        has_manager=has_manager,
        live="type=task",
    )
