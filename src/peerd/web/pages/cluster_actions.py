"""The actions on queues, limits, nodes and schedules."""

from __future__ import annotations

from typing import Any, Final

from peerd.domain.task import NAME_LIMIT
from peerd.web.pages.actions import ActionCall, ActionDone, FormField, PageAction, json_value, whole_number
from peerd.web.pages.addresses import Subject
from peerd.web.pages.formats import number, one_line

# ---------------------------------------------------------------- queues and limits

PAUSE_DURATION: Final = FormField(
    "duration", "For", kind="duration", hint="Such as 10m or 1h; empty: until it is resumed."
)
KICK_LIMIT: Final = FormField("limit", "Tasks at the most", kind="number", value="500", is_required=True)
LIMIT_FIELDS: Final = (
    FormField("queue", "Queue", is_required=True, most=NAME_LIMIT),
    FormField(
        "scope",
        "Limits",
        kind="choice",
        choices=(("queue", "the queue as a whole"), ("each", "each limit key of it"), ("key", "one limit key of it")),
    ),
    FormField("key", "Limit key", most=NAME_LIMIT, hint="Of one limit key."),
    FormField("running", "Tasks at once", kind="number", hint="In the whole cluster; 0 stops them. Empty: any number."),
    FormField("rate", "Starts", hint="Such as 100/1m or 5/s. Empty: any number."),
)
REMOVED_LIMIT: Final = (
    FormField("scope", "", kind="hidden", value="queue"),
    FormField("key", "", kind="hidden"),
)


def _was_paused(call: ActionCall, _: None) -> str:
    duration = call.text("duration")
    return f"The queue {one_line(call.key)} is paused{f' for {duration}' if duration else ''}."


def _were_kicked(_: ActionCall, count: int) -> str:
    tasks = "task is" if count == 1 else "tasks are"
    return f"{number(count)} {tasks} pending now." if count else "Nothing was kicked: no task is buried or delayed."


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


# ---------------------------------------------------------------- nodes


async def _reload(call: ActionCall) -> ActionDone:
    kinds = (call.text("kinds") or "").replace(",", " ").split()
    request = await call.client.nodes.request_reload(call.key, kinds or None, config_only=call.is_on("config_only"))
    return ActionDone(f"The reload of {one_line(call.key)} was requested.", f"/nodes/request/{request.id}")


async def _kinds(call: ActionCall) -> list[str]:
    node = await call.client.nodes.get(call.key)
    processes = await call.client.nodes.processes()
    return sorted({one.kind for one in processes if one.node_id == node.id})


async def _reload_fields(call: ActionCall) -> tuple[FormField, ...]:
    kinds = ", ".join(await _kinds(call)) or "none runs"
    return (
        FormField("kinds", "Kinds", hint=f"Empty: all. Here: {kinds}"),
        FormField("config_only", "Only those whose settings have changed", kind="switch"),
    )


async def _scale_fields(call: ActionCall) -> tuple[FormField, ...]:
    choices = tuple((kind, kind) for kind in await _kinds(call))
    return (
        FormField("kind", "Kind", kind="choice", choices=choices, is_required=True),
        FormField("count", "Processes", kind="number", is_required=True),
    )


# ---------------------------------------------------------------- schedules

SCHEDULE_FIELDS: Final = (
    FormField("name", "Name", is_required=True, most=NAME_LIMIT, hint="Unique in the cluster."),
    FormField("queue", "Queue", is_required=True, most=NAME_LIMIT),
    FormField("task", "Handler", most=NAME_LIMIT),
    FormField("body", "Body (JSON)", kind="long", hint="Empty: none"),
    FormField("interval", "Every", kind="duration", hint="Such as 10m; or a cron expression below."),
    FormField("cron", "Cron", hint="Five fields, or six with the seconds first: 0 3 * * *"),
    FormField("timezone", "Time zone", value="UTC", hint="Of the cron expression, such as Europe/Vienna"),
    FormField(
        "overlap",
        "If the run before has not ended",
        kind="choice",
        choices=(("skip", "leave this one out"), ("queue", "wait"), ("allow", "run both")),
    ),
)
ARGUMENTS: Final = FormField(
    "arguments",
    "Arguments (JSON)",
    kind="long",
    hint="A list or an object instead of its own; empty: its own.",
)


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


CLUSTER_ACTIONS: Final = (
    PageAction(
        "queues.pause",
        "Pause",
        effect="No task of {key} is claimed meanwhile. Running ones go on.",
        fields=(PAUSE_DURATION,),
        notice=_was_paused,
        undo="resume",
    ),
    PageAction(
        "queues.resume",
        "Resume",
        effect="Tasks of {key} are claimed again.",
        notice="The queue {key} is open again.",
        undo="pause",
    ),
    PageAction(
        "queues.kick",
        "Kick",
        effect="Buried tasks of {key} become pending, the longest buried first; if there are none, delayed ones.",
        fields=(KICK_LIMIT,),
        notice=_were_kicked,
    ),
    PageAction(
        "limits.set",
        "Set a limit",
        effect="This limit takes the place of the present one in the whole cluster, within a second.",
        fields=LIMIT_FIELDS,
        run=_set_limit,
        creates=True,
    ),
    PageAction(
        "limits.remove",
        "Remove",
        effect="This limit of {key} is removed.",
        fields=REMOVED_LIMIT,
        run=_remove_limit,
    ),
    PageAction(
        "nodes.drain",
        "Drain",
        effect="{key} claims no more tasks. Running ones go on to their end.",
        notice="{key} claims no more tasks. Below you see it become empty.",
        leads_to="{page}",
        undo="undrain",
    ),
    PageAction(
        "nodes.undrain",
        "Undrain",
        effect="{key} claims tasks again.",
        notice="{key} claims tasks again.",
        undo="drain",
    ),
    PageAction(
        "nodes.reload",
        "Reload",
        effect="The processes of {key} are replaced one by one, with new code and settings. No task is lost.",
        operation="nodes.request_reload",
        fields=_reload_fields,
        run=_reload,
    ),
    PageAction(
        "nodes.scale",
        "Scale",
        effect="{key} runs this number of processes of one kind. Its next start or reload goes back to its peerd.toml.",
        operation="nodes.request_scale",
        fields=_scale_fields,
        notice="{count} processes were requested.",
        leads_to="/nodes/request/{result.id}",
    ),
    PageAction(
        "nodes.forget",
        "Forget",
        effect="The row of {key} is deleted. Only a node that is gone can be forgotten.",
        notice="The node {key} is forgotten.",
        leads_to="/nodes",
        is_destructive=True,
    ),
    PageAction(
        "schedules.run",
        "Run now",
        effect="{key} runs once, beside its ticks.",
        fields=(ARGUMENTS,),
        run=_run_now,
    ),
    PageAction(
        "schedules.enable",
        "Enable",
        effect="{key} ticks again. Ticks that it has missed are not made up for.",
        notice="The schedule {key} is enabled.",
        undo="disable",
    ),
    PageAction(
        "schedules.disable",
        "Disable",
        effect="{key} ticks no more, in the whole cluster. It can still be run by hand.",
        notice="The schedule {key} is disabled.",
        undo="enable",
    ),
    PageAction(
        "schedules.create",
        "Create a schedule",
        effect="A task is enqueued at each tick, on any node; it survives restarts.",
        fields=SCHEDULE_FIELDS,
        run=_create_schedule,
        creates=True,
    ),
    PageAction(
        "schedules.delete",
        "Delete",
        effect="{key} is deleted. What it has enqueued stays.",
        notice="The schedule {key} was deleted.",
        leads_to="/schedules",
        is_destructive=True,
    ),
)
