"""Bulk actions: one action on all tasks of a filter, carried out by the managers of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.bulk import RESTRICTED_TO, BulkAction, BulkMoveToQueue, BulkPreview, BulkState, TaskAction
from peerd.domain.errors import InvalidFilter
from peerd.domain.quoting import Masker, quoted
from peerd.domain.ring import TasksAvailable
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.rest import rest
from peerd.operate.task_filter import TaskFilter
from peerd.operate.visible_tasks import mask_task, require_readable
from peerd.store import bulk
from peerd.store.audit import bulk_state
from peerd.store.bulk import PREVIEW_TIME, create_bulk, preview_bulk
from peerd.store.bulk_chunks import carry_out_chunk
from peerd.store.nodes import is_role_alive
from peerd.store.tasks.rows import BATCH

BulkActions = list[BulkAction]
SHORTEST_PREVIEW = 0.001
"""Seconds."""
MANAGER_SILENCE = 30.0
"""Seconds without a heartbeat after which a manager counts as gone."""


class BulkOperations(OperationGroup[Mode]):
    """``client.bulk``. What names a bulk action raises `BulkActionNotFound` where there is none of this id.

    A bulk action acts on the tasks that met its filter at its preview, unless they have changed since: each once, as
    the same action of ``client.tasks`` would. Tasks that were enqueued later are never touched.

    An actor that is restricted to queues acts on tasks of these alone, also where the filter has others, and where
    tasks are moved meanwhile. Such an actor finds bulk actions of no other queues than its own.
    """

    subject = "bulk"

    @operation(in_queues=True)
    def preview(
        self,
        action: TaskAction,
        tasks: TaskFilter | None = None,
        *,
        all_tasks: bool = False,
        within: str | float = PREVIEW_TIME,
    ) -> Query[BulkPreview]:
        """How many tasks a bulk action would be for, the first of them, and a digest with which `create` takes these.

        Args:
            action: what would be done to each: `BulkRetry`, `BulkCancel`, `BulkDelete`, `BulkSnooze`, `BulkMove`,
                `BulkMoveToQueue`, `BulkChange`, `BulkBury` or `BulkKick`.
            tasks: the filter.
            all_tasks: allow a filter without conditions.
            within: seconds, or "100ms", after which counting ends with a number that may be too low; from a millisecond
                to the default.

        Raises:
            InvalidFilter: a value is out of its range; or there are no conditions.
            IllegalTransition: no task of the filter's status allows the action.
            NodeNotFound: no node has this name.
        """
        wanted, fields = self._checked("bulk.preview", action, tasks, all_tasks=all_tasks)
        seconds = validation.time_span("within", within, SHORTEST_PREVIEW, PREVIEW_TIME)
        return Query("read", _preview, wanted, fields, seconds, self._masker)

    @operation(in_queues=True)
    def create(
        self,
        action: TaskAction,
        tasks: TaskFilter | None = None,
        *,
        digest: str | None = None,
        most: int | None = None,
        all_tasks: bool = False,
    ) -> Query[BulkAction]:
        """Begin a bulk action; a manager carries it out within a few seconds.

        Args:
            action: what is done to each task.
            tasks: the filter.
            digest: of a preview of the same filter and an action of the same name; without it, the tasks are those that
                meet the filter now.
            most: tasks that are acted on at the most, in the order of `TaskOperations.page`.
            all_tasks: allow a filter without conditions.

        Raises:
            InvalidFilter: a value is out of its range; there are no conditions; or the digest is of another preview.
            IllegalTransition: no task of the filter's status allows the action.
            NodeNotFound: no node has this name.
        """
        wanted, fields = self._checked("bulk.create", action, tasks, all_tasks=all_tasks)
        at_most = None if most is None else validation.number("most", most, 1)
        query = Query(
            "run",
            _masked,
            self._masker,
            create_bulk,
            wanted,
            fields,
            digest=_digest(digest),
            most=at_most,
            created_by=self._actor.name,
        )
        return query.making("bulk", lambda bulk: (str(bulk.id), {"action": bulk.action_name, "matched": bulk.matched}))

    @operation(in_queues=True, rest=rest("GET /bulk", name="list_bulk_actions", renamed={"states": "state"}))
    def list(self, *, states: Sequence[str] | None = None, limit: int = 50) -> Query[BulkActions]:
        """The newest bulk actions, newest first; those of some states, or all. They are kept for a week."""
        wanted = None if states is None else [_state(state) for state in states]
        most = validation.number("limit", limit, 1, 1_000)
        return Query("read", _masked_list, self._masker, self._actor.queues, wanted, most)

    @operation(in_queues=True, rest=rest("GET /bulk/{bulk_id}", name="show"))
    def get(self, bulk_id: int) -> Query[BulkAction]:
        """The bulk action of this id, and how far it is."""
        return Query("read", _masked, self._masker, _if_within, self._actor.queues, _id(bulk_id), bulk.get_bulk)

    @operation(in_queues=True, rest=rest("POST /bulk/{bulk_id}/pause"))
    def pause(self, bulk_id: int) -> Query[BulkAction]:
        """Stop it before its next chunk, until `resume`; raises `BulkActionHasEnded`."""
        return self._steering(bulk_id, bulk.pause_bulk)

    @operation(in_queues=True, rest=rest("POST /bulk/{bulk_id}/resume"))
    def resume(self, bulk_id: int) -> Query[BulkAction]:
        """Go on with one that is paused; raises `BulkActionHasEnded`."""
        return self._steering(bulk_id, bulk.resume_bulk)

    @operation(in_queues=True, rest=rest("POST /bulk/{bulk_id}/cancel"))
    def cancel(self, bulk_id: int) -> Query[BulkAction]:
        """End it before its next chunk; what it has done stays done. Raises `BulkActionHasEnded`."""
        return self._steering(bulk_id, bulk.cancel_bulk)

    @operation(in_queues=True, audited=False)
    def carry_out(self, bulk_id: int, tasks: int = BATCH) -> Query[BulkAction]:
        """Do its next chunk here and now, where no node runs that would; nothing happens if it is not to go on.

        Args:
            bulk_id: its id.
            tasks: of the chunk, at the most: 1 to 500.

        Returns:
            how far it is then.
        """
        size = validation.number("tasks", tasks, 1, BATCH)
        queues, number = self._actor.queues, _id(bulk_id)
        query = Query("run", _masked, self._masker, _if_within, queues, number, _carry_out, size)
        return query.then_ring(TasksAvailable())

    @operation(in_queues=True)
    def has_manager(self) -> Query[bool]:
        """Whether a node runs that carries bulk actions out."""
        return Query("read", is_role_alive, "manager", MANAGER_SILENCE)

    def _checked(
        self, operation_name: str, action: Any, tasks: TaskFilter | None, *, all_tasks: bool
    ) -> tuple[TaskAction, dict[str, Any]]:
        """An action that the actor may do, and the fields of its filter, restricted to the queues of the actor."""
        require_readable(self._actor, self._masker, operation_name, tasks or TaskFilter())
        fields = _fields(tasks, all_tasks=all_tasks)
        if self._actor.queues is not None:
            fields[RESTRICTED_TO] = sorted(self._actor.queues)
        wanted = _action(action)
        if isinstance(wanted, BulkMoveToQueue):
            self._require_queue(operation_name, wanted.queue)
        return wanted, fields

    def _steering(self, bulk_id: int, act: Callable[[Connection, int], BulkAction]) -> Query[BulkAction]:
        number = _id(bulk_id)
        query = Query("run", _masked, self._masker, _if_within, self._actor.queues, number, act)
        return query.acting_on("bulk", number, bulk_state, number)


def _preview(
    connection: Connection, action: TaskAction, fields: dict[str, Any], within: float, masker: Masker | None
) -> BulkPreview:
    found = preview_bulk(connection, action, fields, within=within)
    if masker is None:
        return found
    return msgspec.structs.replace(found, examples=[mask_task(task, masker) for task in found.examples])


def _masked(
    connection: Connection, masker: Masker | None, act: Callable[..., BulkAction], /, *args: Any, **named: Any
) -> BulkAction:
    """The bulk action that a function returns, as the actor sees it."""
    found = act(connection, *args, **named)
    return found if masker is None else _mask(found, masker)


def _masked_list(
    connection: Connection,
    masker: Masker | None,
    queues: Collection[str] | None,
    states: Collection[BulkState] | None,
    most: int,
) -> BulkActions:
    found = bulk.list_bulk(connection, queues, states, most)
    return found if masker is None else [_mask(one, masker) for one in found]


def _mask(found: BulkAction, masker: Masker) -> BulkAction:
    """A bulk action whose texts are masked: those of its action, its filter and its errors."""
    texts = {
        name: masker.json_text(text)
        for name in ("body", "reason")
        if (text := getattr(found.action, name, None)) is not None
    }
    return msgspec.structs.replace(
        found,
        action=msgspec.structs.replace(found.action, **texts),
        filter=masker.value(found.filter),
        errors=[msgspec.structs.replace(one, error=masker.text(one.error)) for one in found.errors],
        error=None if found.error is None else masker.text(found.error),
    )


def _if_within(
    connection: Connection,
    queues: Collection[str] | None,
    bulk_id: int,
    act: Callable[..., BulkAction],
    *args: int,
) -> BulkAction:
    """Do it to a bulk action of no other queues than these; another one does not exist (`BulkActionNotFound`)."""
    bulk.require_within(connection, bulk_id, queues)
    return act(connection, bulk_id, *args)


def _carry_out(connection: Connection, bulk_id: int, size: int) -> BulkAction:
    bulk.get_bulk(connection, bulk_id)
    done = carry_out_chunk(connection, size, bulk_id).bulk
    return bulk.get_bulk(connection, bulk_id) if done is None else done


def _action(action: Any) -> TaskAction:
    if not isinstance(action, TaskAction):
        raise InvalidFilter("action", f"{quoted(action)} is no action: give BulkRetry(), BulkCancel(…) and so on")
    return action


def _fields(tasks: TaskFilter | None, *, all_tasks: bool) -> dict[str, Any]:
    """The fields of a filter that are given."""
    checked = (tasks or TaskFilter()).checked()
    given = msgspec.structs.asdict(checked) | {"where": list(checked.where) or None}
    fields = {name: value for name, value in given.items() if value is not None}
    if not fields and not all_tasks:
        raise InvalidFilter("filter", "no condition is given: that means all tasks, which needs all_tasks=True")
    return fields


def _digest(value: object) -> str | None:
    if value is not None and not (isinstance(value, str) and len(value) <= validation.MAX_CURSOR):
        raise InvalidFilter("digest", f"{quoted(value)} is no digest of a preview")
    return value


def _state(word: str) -> BulkState:
    try:
        return BulkState(word)
    except (ValueError, TypeError):
        raise InvalidFilter("state", f"{quoted(word)} is none of {', '.join(BulkState)}") from None


def _id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidFilter("bulk", f"{quoted(value)} is not the id of a bulk action")
    return value
