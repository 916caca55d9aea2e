"""The actions on one task, and on one bulk action."""

from __future__ import annotations

import json
from typing import Any, Final

from peerd.domain.errors import InvalidTask
from peerd.domain.lifecycle import TaskEvent, sources
from peerd.domain.quoting import MASKED
from peerd.domain.task import BODY_LIMIT, DEFAULT_PRIORITY, NAME_LIMIT, Task
from peerd.web.pages.actions import ActionCall, ActionDone, FormField, PageAction, json_value, whole_number
from peerd.web.pages.addresses import Subject, UrlQuery
from peerd.web.pages.formats import one_line

EVENT_OF: Final[dict[str, TaskEvent]] = {
    "retry": TaskEvent.RETRY,
    "kick": TaskEvent.KICK,
    "cancel": TaskEvent.CANCEL,
    "snooze": TaskEvent.RESCHEDULE,
    "move": TaskEvent.MOVE,
    "requeue": TaskEvent.MOVE,
    "change": TaskEvent.CHANGE,
    "bury": TaskEvent.BURY,
    "delete": TaskEvent.DELETE,
}
"""What decides whether a task's status allows an action."""
ANY_NODE: Final = ""
PRIORITY_HINT: Final = "Higher first."


def allowed_verbs(task: Task) -> list[str]:
    """The actions that the status of a task allows, and to enqueue it again."""
    return [*(verb for verb, event in EVENT_OF.items() if task.status in sources(event)), "again"]


async def _move(call: ActionCall) -> ActionDone:
    node = call.text("node")
    task = await call.client.tasks.get(int(call.key))
    names = {one.id: one.name for one in await call.client.nodes.list()}
    await call.client.tasks.move(task.id, node)
    undo = _back_to("move", task, node=names.get(task.node_id or 0, ANY_NODE))
    return ActionDone(f"Task {task.id} may run on {'any node' if node is None else one_line(node)}.", undo=undo)


async def _requeue(call: ActionCall) -> ActionDone:
    queue = call.text("queue") or ""
    task = await call.client.tasks.get(int(call.key))
    await call.client.tasks.move_to_queue(task.id, queue)
    undo = _back_to("requeue", task, queue=task.queue)
    return ActionDone(f"Task {task.id} is in the queue {one_line(queue)}.", undo=undo)


async def _change(call: ActionCall) -> ActionDone:
    task = await call.client.tasks.get(int(call.key))
    changed: dict[str, Any] = {}
    priority = call.text("priority")
    if priority is not None and whole_number("priority", priority) != task.priority:
        changed["priority"] = whole_number("priority", priority)
    if "body" in call.values and call.values["body"].replace("\r\n", "\n") != body_text(task):
        _require_values(call, call.values["body"])
        changed["body"] = json_value("body", call.values["body"])
    if not changed:
        return ActionDone(f"Task {call.key} is as it was: nothing was changed.")
    await call.client.tasks.change(task.id, **changed)
    before = {"priority": str(task.priority), "body": body_text(task)}
    undo = _back_to("change", task, **{name: before[name] for name in changed})
    return ActionDone(f"Task {call.key} was changed: {', '.join(changed)}.", undo=undo)


def _back_to(verb: str, task: Task, **values: str) -> str:
    """The address of an action that gives a task these values."""
    return UrlQuery(tuple(values.items())).address(Subject.TASK.action(task.id, verb))


async def _enqueue_again(call: ActionCall) -> ActionDone:
    task = await call.client.tasks.get(int(call.key))
    queue = call.text("queue") or task.queue
    kept = {name: getattr(task, name) for name in ("timeout", "max_attempts", "limit_key")}
    options: dict[str, Any] = {name: value for name, value in kept.items() if value is not None}
    _require_values(call, (task.body_bytes or call.values.get("body", "").encode()).decode(errors="replace"))
    if task.body_bytes is not None:
        options["bytes"] = task.body_bytes
    elif task.json is None and task.body is not None:
        options["text"] = call.values.get("body", "")
    else:
        options["body"] = await _fitting_body(call, queue, call.values.get("body", "null"))
    return await _enqueue_in(call, queue, options)


async def _enqueue(call: ActionCall) -> ActionDone:
    queue = call.text("queue") or ""
    return await _enqueue_in(call, queue, {"body": await _fitting_body(call, queue, call.text("body") or "null")})


async def _enqueue_in(call: ActionCall, queue: str, options: dict[str, Any]) -> ActionDone:
    """Enqueue a task with these options, and those that were typed."""
    if (priority := call.text("priority")) is not None:
        options["priority"] = whole_number("priority", priority)
    typed = {name: call.text(name) for name in ("node", "start_in")}
    options |= {name: value for name, value in typed.items() if value is not None}
    job = await call.client.enqueue(queue, name=call.text("name") or "", **options)
    return ActionDone(f"Task {job.id} was enqueued.", Subject.TASK.page(job.id))


def _require_values(call: ActionCall, text: str) -> None:
    """Check that no value of a body is what stands for a masked one, which no task shall get; raises `InvalidTask`."""
    masker = call.client.mode.blocking.masker
    if MASKED in text and MASKED in masker.json_text(text.replace(MASKED, "?")):
        raise InvalidTask("body", f"{MASKED} stands for a value that is masked, which is not known here")


async def _fitting_body(call: ActionCall, queue: str, text: str) -> Any:
    """The value of a body; raises `InvalidTask` where no process of the queue has a handler that takes it."""
    value = json_value("body", text)
    problem = await call.client.queues.misfit(queue, call.text("name") or "", None if value is None else text)
    if problem is not None:
        raise InvalidTask("body", f"{problem}. For code that no node has yet: peerd enqueue")
    return value


async def _change_fields(call: ActionCall) -> tuple[FormField, ...]:
    task = await call.client.tasks.get(int(call.key))
    return (_priority_field(task), *_body_field(task))


async def _enqueue_fields(call: ActionCall) -> tuple[FormField, ...]:
    return (
        FormField("queue", "Queue", is_required=True, most=NAME_LIMIT),
        FormField("name", "Handler", most=NAME_LIMIT),
        FormField("body", "Body (JSON)", kind="long", hint="Empty: none", most=BODY_LIMIT),
        FormField("priority", "Priority", kind="number", hint=f"{PRIORITY_HINT} Empty: {DEFAULT_PRIORITY}"),
        FormField("start_in", "Start in", kind="duration", hint="Such as 10m; empty: now"),
        *(await node_fields(call)),
    )


async def _again_fields(call: ActionCall) -> tuple[FormField, ...]:
    task = await call.client.tasks.get(int(call.key))
    return (
        FormField("queue", "Queue", value=task.queue, is_required=True, most=NAME_LIMIT),
        FormField("name", "Handler", value=task.name, most=NAME_LIMIT),
        *_body_field(task),
        _priority_field(task),
        *(await node_fields(call)),
    )


async def node_fields(call: ActionCall) -> tuple[FormField, ...]:
    """A choice of one node, or any."""
    nodes = await call.client.nodes.list()
    choices = [(ANY_NODE, "any node"), *((node.name, node.name) for node in nodes)]
    return (FormField("node", "Node", kind="choice", choices=tuple(choices)),)


def _priority_field(task: Task) -> FormField:
    return FormField("priority", "Priority", kind="number", value=str(task.priority), hint=PRIORITY_HINT)


def _body_field(task: Task) -> tuple[FormField, ...]:
    if task.body_bytes is not None:
        return ()
    kind = "text" if task.json is None and task.body is not None else "JSON"
    return (FormField("body", f"Body ({kind})", kind="long", value=body_text(task), most=BODY_LIMIT),)


def body_text(task: Task) -> str:
    """A body as it is edited: JSON with one value a line."""
    if task.body is None:
        return "null"
    return task.body if task.json is None else json.dumps(task.json, indent=2, ensure_ascii=False)


REASON: Final = FormField("reason", "Reason", hint="Becomes the error of the task.", value="canceled by hand")
DURATION: Final = FormField(
    "duration", "Start in", kind="duration", value="1h", is_required=True, hint="Such as 30s, 10m, 1h30m, 2d"
)
QUEUE: Final = FormField("queue", "Queue", is_required=True, most=NAME_LIMIT)

TASK_ACTIONS: Final = (
    PageAction(
        "tasks.retry",
        "Retry",
        effect="Task {key} runs again at once, with all its attempts.",
        notice="Task {key} was retried.",
    ),
    PageAction("tasks.kick", "Kick", effect="Task {key} becomes pending now.", notice="Task {key} was kicked."),
    PageAction(
        "tasks.cancel",
        "Cancel",
        effect="Task {key} ends. If it is running, its handler is stopped.",
        fields=(REASON,),
        notice="Task {key} was canceled.",
        undo="retry",
        is_destructive=True,
    ),
    PageAction(
        "tasks.snooze",
        "Snooze",
        effect="Task {key} does not start before that time. If it is running, its handler is stopped.",
        fields=(DURATION,),
        notice="Task {key} was snoozed: it starts in {duration}.",
    ),
    PageAction(
        "tasks.move",
        "Move to a node",
        effect="Only that node runs task {key}. If it is running elsewhere, it becomes pending.",
        fields=node_fields,
        run=_move,
    ),
    PageAction(
        "tasks.requeue",
        "Move to a queue",
        effect="Task {key} waits in that queue. If it is running, it becomes pending.",
        operation="tasks.move_to_queue",
        fields=(QUEUE,),
        run=_requeue,
    ),
    PageAction(
        "tasks.change",
        "Change",
        effect="Task {key} has this priority and this body from now on.",
        fields=_change_fields,
        run=_change,
    ),
    PageAction(
        "tasks.bury",
        "Bury",
        effect="Task {key} is buried until it is kicked or retried.",
        notice="Task {key} was buried.",
        undo="kick",
    ),
    PageAction(
        "tasks.delete",
        "Delete",
        effect="Task {key}, its attempts and its log lines are deleted. This cannot be taken back.",
        notice="Task {key} was deleted.",
        leads_to="/tasks",
        is_destructive=True,
    ),
    PageAction(
        "tasks.again",
        "Enqueue again",
        effect="A new task is enqueued with these values; task {key} stays as it is.",
        operation="enqueue",
        fields=_again_fields,
        run=_enqueue_again,
    ),
    PageAction(
        "tasks.enqueue",
        "Enqueue a task",
        effect="A free process of the cluster claims it as soon as it is due.",
        operation="enqueue",
        fields=_enqueue_fields,
        run=_enqueue,
        creates=True,
    ),
)
BULK_ACTIONS: Final = (
    PageAction(
        "bulk.pause",
        "Pause",
        effect="Bulk action {key} stops before its next chunk, until it is resumed.",
        notice="Bulk action {key} is paused.",
    ),
    PageAction(
        "bulk.resume",
        "Resume",
        effect="Bulk action {key} goes on where it was paused.",
        notice="Bulk action {key} goes on.",
    ),
    PageAction(
        "bulk.cancel",
        "Cancel",
        effect="Bulk action {key} ends before its next chunk. What it has done stays done.",
        notice="Bulk action {key} was canceled.",
        is_destructive=True,
    ),
)
