"""The actions on queues, limits, nodes and schedules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from peerd.domain.task import NAME_LIMIT
from peerd.operate.client import AioClient
from peerd.web.pages.actions import ActionCall, ActionDone, FormField, PageAction
from peerd.web.pages.formats import number, one_line
from peerd.web.pages.subjects import Subject
from peerd.web.pages.task_actions import json_value, whole_number

Run = Callable[[ActionCall], Awaitable[ActionDone]]

# ---------------------------------------------------------------- queues and limits

PAUSE_DURATION: Final = FormField(
    name="duration", label="For", kind="duration", hint="Such as 10m or 1h; empty: until it is resumed."
)
KICK_LIMIT: Final = FormField(name="limit", label="Tasks at the most", kind="number", value="500", is_required=True)
LIMIT_FIELDS: Final = (
    FormField(name="queue", label="Queue", is_required=True, most=NAME_LIMIT),
    FormField(
        name="scope",
        label="Limits",
        kind="choice",
        choices=(("queue", "the queue as a whole"), ("each", "each limit key of it"), ("key", "one limit key of it")),
    ),
    FormField(name="key", label="Limit key", most=NAME_LIMIT, hint="Of one limit key."),
    FormField(
        name="running",
        label="Tasks at once",
        kind="number",
        hint="In the whole cluster; 0 stops them. Empty: any number.",
    ),
    FormField(name="rate", label="Starts", hint="Such as 100/1m or 5/s. Empty: any number."),
)
REMOVED_LIMIT: Final = (
    FormField(name="scope", label="", kind="hidden", value="queue"),
    FormField(name="key", label="", kind="hidden"),
)


async def _pause(call: ActionCall) -> ActionDone:
    duration = call.text("duration")
    await call.client.queues.pause(call.key, duration)
    return ActionDone(
        f"The queue {one_line(call.key)} is paused{f' for {duration}' if duration else ''}.",
        undo=Subject.QUEUE.action(call.key, "resume"),
    )


async def _resume(call: ActionCall) -> ActionDone:
    await call.client.queues.resume(call.key)
    return ActionDone(f"The queue {one_line(call.key)} is open again.", undo=Subject.QUEUE.action(call.key, "pause"))


async def _kick(call: ActionCall) -> ActionDone:
    count = await call.client.queues.kick(call.key, whole_number("limit", call.values.get("limit", "")))
    tasks = "task is" if count == 1 else "tasks are"
    return ActionDone(
        f"{number(count)} {tasks} pending now." if count else "Nothing was kicked: no task is buried or delayed."
    )


def _target(call: ActionCall) -> dict[str, Any]:
    match call.values.get("scope"):
        case "each":
            return {"each_key": True}
        case "key":
            return {"key": call.values.get("key", "")}
        case _:
            return {}


async def _set_limit(call: ActionCall) -> ActionDone:
    queue, running = call.text("queue") or "", call.text("running")
    count = None if running is None else whole_number("running", running)
    await call.client.limits.set(queue, running=count, rate=call.text("rate"), **_target(call))
    return ActionDone(f"The limit of {one_line(queue)} was set.", "/limits")


async def _remove_limit(call: ActionCall) -> ActionDone:
    removed = await call.client.limits.remove(call.key, **_target(call))
    return ActionDone("The limit was removed." if removed else "There was no such limit any more.", "/limits")


QUEUE_ACTIONS: Final = (
    PageAction(
        subject=Subject.QUEUE,
        verb="pause",
        label="Pause",
        run=_pause,
        fields=(PAUSE_DURATION,),
        effect="No task of {key} is claimed meanwhile. Running ones go on.",
    ),
    PageAction(
        subject=Subject.QUEUE, verb="resume", label="Resume", run=_resume, effect="Tasks of {key} are claimed again."
    ),
    PageAction(
        subject=Subject.QUEUE,
        verb="kick",
        label="Kick",
        run=_kick,
        fields=(KICK_LIMIT,),
        effect="Buried tasks of {key} become pending, the longest buried first; if there are none, delayed ones.",
    ),
    PageAction(
        subject=Subject.LIMIT,
        verb="set",
        creates=True,
        label="Set a limit",
        run=_set_limit,
        fields=LIMIT_FIELDS,
        effect="This limit takes the place of the present one in the whole cluster, within a second.",
    ),
    PageAction(
        subject=Subject.LIMIT,
        verb="remove",
        label="Remove",
        run=_remove_limit,
        fields=REMOVED_LIMIT,
        effect="This limit of {key} is removed.",
    ),
)

# ---------------------------------------------------------------- nodes


async def _drain(call: ActionCall) -> ActionDone:
    await call.client.nodes.drain(call.key)
    return ActionDone(
        f"{one_line(call.key)} claims no more tasks. Below you see it become empty.",
        Subject.NODE.page(call.key),
        undo=Subject.NODE.action(call.key, "undrain"),
    )


async def _undrain(call: ActionCall) -> ActionDone:
    await call.client.nodes.undrain(call.key)
    return ActionDone(f"{one_line(call.key)} claims tasks again.", undo=Subject.NODE.action(call.key, "drain"))


async def _forget(call: ActionCall) -> ActionDone:
    await call.client.nodes.forget(call.key)
    return ActionDone(f"The node {one_line(call.key)} is forgotten.", "/nodes")


async def _reload(call: ActionCall) -> ActionDone:
    kinds = (call.text("kinds") or "").replace(",", " ").split()
    request = await call.client.nodes.request_reload(call.key, kinds or None, config_only=call.is_on("config_only"))
    return ActionDone(f"The reload of {one_line(call.key)} was requested.", f"/nodes/request/{request.id}")


async def _scale(call: ActionCall) -> ActionDone:
    count = whole_number("count", call.values.get("count", ""))
    request = await call.client.nodes.request_scale(call.key, call.text("kind") or "", count)
    return ActionDone(f"{count} processes were requested.", f"/nodes/request/{request.id}")


async def _kinds(call: ActionCall) -> list[str]:
    node = await call.client.nodes.get(call.key)
    processes = await call.client.nodes.processes()
    return sorted({one.kind for one in processes if one.node_id == node.id})


async def _reload_fields(call: ActionCall) -> tuple[FormField, ...]:
    kinds = ", ".join(await _kinds(call)) or "none runs"
    return (
        FormField(name="kinds", label="Kinds", hint=f"Empty: all. Here: {kinds}"),
        FormField(name="config_only", label="Only those whose settings have changed", kind="switch"),
    )


async def _scale_fields(call: ActionCall) -> tuple[FormField, ...]:
    choices = tuple((kind, kind) for kind in await _kinds(call))
    return (
        FormField(name="kind", label="Kind", kind="choice", choices=choices, is_required=True),
        FormField(name="count", label="Processes", kind="number", is_required=True),
    )


NODE_ACTIONS: Final = (
    PageAction(
        subject=Subject.NODE,
        verb="drain",
        label="Drain",
        run=_drain,
        needs_all_queues=True,
        effect="{key} claims no more tasks. Running ones go on to their end.",
    ),
    PageAction(
        subject=Subject.NODE,
        verb="undrain",
        label="Undrain",
        run=_undrain,
        needs_all_queues=True,
        effect="{key} claims tasks again.",
    ),
    PageAction(
        subject=Subject.NODE,
        verb="reload",
        label="Reload",
        run=_reload,
        fields=_reload_fields,
        needs_all_queues=True,
        effect="The processes of {key} are replaced one by one, with new code and settings. No task is lost.",
    ),
    PageAction(
        subject=Subject.NODE,
        verb="scale",
        label="Scale",
        run=_scale,
        fields=_scale_fields,
        needs_all_queues=True,
        effect="{key} runs this number of processes of one kind. Its next start or reload goes back to its peerd.toml.",
    ),
    PageAction(
        subject=Subject.NODE,
        verb="forget",
        label="Forget",
        run=_forget,
        is_destructive=True,
        needs_all_queues=True,
        effect="The row of {key} is deleted. Only a node that is gone can be forgotten.",
    ),
)

# ---------------------------------------------------------------- schedules

SCHEDULE_FIELDS: Final = (
    FormField(name="name", label="Name", is_required=True, most=NAME_LIMIT, hint="Unique in the cluster."),
    FormField(name="queue", label="Queue", is_required=True, most=NAME_LIMIT),
    FormField(name="task", label="Handler", most=NAME_LIMIT),
    FormField(name="body", label="Body (JSON)", kind="long", hint="Empty: none"),
    FormField(name="interval", label="Every", kind="duration", hint="Such as 10m; or a cron expression below."),
    FormField(name="cron", label="Cron", hint="Five fields, or six with the seconds first: 0 3 * * *"),
    FormField(name="timezone", label="Time zone", value="UTC", hint="Of the cron expression, such as Europe/Vienna"),
    FormField(
        name="overlap",
        label="If the run before has not ended",
        kind="choice",
        choices=(("skip", "leave this one out"), ("queue", "wait"), ("allow", "run both")),
    ),
)
ARGUMENTS: Final = FormField(
    name="arguments",
    label="Arguments (JSON)",
    kind="long",
    hint="A list or an object instead of its own; empty: its own.",
)


def _switch(operation: Callable[[AioClient, str], Awaitable[object]], past: str, inverse: str) -> Run:
    async def run(call: ActionCall) -> ActionDone:
        await operation(call.client, call.key)
        undo = Subject.SCHEDULE.action(call.key, inverse)
        return ActionDone(f"The schedule {one_line(call.key)} is {past}.", undo=undo)

    return run


async def _run_now(call: ActionCall) -> ActionDone:
    text = call.text("arguments")
    given = [] if text is None else json_value("arguments", text)
    args, named = (given, {}) if isinstance(given, list) else ([], given) if isinstance(given, dict) else ([given], {})
    run = await call.client.schedules.run(call.key, *args, **named)
    return ActionDone(f"Run {run.id} was requested; a node takes it within a second.", Subject.SCHEDULE.page(call.key))


async def _create_schedule(call: ActionCall) -> ActionDone:
    fields: dict[str, Any] = {
        name: call.text(name)
        for name in ("queue", "task", "interval", "cron", "overlap")
        if call.text(name) is not None
    }
    if call.text("cron") is not None:
        fields["timezone"] = call.text("timezone") or "UTC"
    if (body := call.text("body")) is not None:
        fields["body"] = json_value("body", body)
    name = call.text("name") or ""
    await call.client.schedules.create(name, **fields)
    return ActionDone(f"The schedule {one_line(name)} was created; running nodes have it within seconds.", "/schedules")


async def _delete_schedule(call: ActionCall) -> ActionDone:
    await call.client.schedules.delete(call.key)
    return ActionDone(f"The schedule {one_line(call.key)} was deleted.", "/schedules")


SCHEDULE_ACTIONS: Final = (
    PageAction(
        subject=Subject.SCHEDULE,
        verb="run",
        label="Run now",
        run=_run_now,
        fields=(ARGUMENTS,),
        needs_all_queues=True,
        effect="{key} runs once, beside its ticks.",
    ),
    PageAction(
        subject=Subject.SCHEDULE,
        verb="enable",
        label="Enable",
        run=_switch(lambda client, key: client.schedules.enable(key), "enabled", inverse="disable"),
        needs_all_queues=True,
        effect="{key} ticks again. Ticks that it has missed are not made up for.",
    ),
    PageAction(
        subject=Subject.SCHEDULE,
        verb="disable",
        label="Disable",
        run=_switch(lambda client, key: client.schedules.disable(key), "disabled", inverse="enable"),
        needs_all_queues=True,
        effect="{key} ticks no more, in the whole cluster. It can still be run by hand.",
    ),
    PageAction(
        subject=Subject.SCHEDULE,
        verb="create",
        creates=True,
        label="Create a schedule",
        run=_create_schedule,
        fields=SCHEDULE_FIELDS,
        needs_all_queues=True,
        effect="A task is enqueued at each tick, on whatever node; it survives restarts.",
    ),
    PageAction(
        subject=Subject.SCHEDULE,
        verb="delete",
        label="Delete",
        run=_delete_schedule,
        is_destructive=True,
        needs_all_queues=True,
        effect="{key} is deleted. What it has enqueued stays.",
    ),
)
CLUSTER_ACTIONS: Final = (*QUEUE_ACTIONS, *NODE_ACTIONS, *SCHEDULE_ACTIONS)
