"""What the REST API and its events show of a value: JSON with ids as text, and nodes by their names.

JavaScript cannot hold all ids as numbers, and the id of a node says nothing to a reader. A view is a struct that is
made from the struct of a value: `Differences` says where it has other fields.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from peerd.domain.bulk import BulkAction
from peerd.domain.log_line import TaskLogLine
from peerd.domain.node_request import NodeRequestStatus
from peerd.domain.task import Attempt, Task
from peerd.operate.nodes import LiveNode
from peerd.operate.wire.signatures import descriptions_in
from peerd.store.alerts import AlertRecord
from peerd.store.node_requests import NodeRequest
from peerd.store.nodes import Node
from peerd.store.processes import ProcessRecord, process_state
from peerd.store.schedule_runs import ScheduleRun

Nodes = Mapping[int, Node]
"""The nodes of the cluster, by id."""
Read = Callable[[Any, Nodes], Any]
"""Reads a field of a view from a value."""
IDS: Final = frozenset({"id", "lease", "task", "example_task"})
"""Fields that are ids, beside those whose names end with ``_id``."""
NODE_ID: Final = "node_id"


class TaskInFull(Task, frozen=True, kw_only=True):
    """A task, and its attempts that did not succeed. Its body is ``body`` if it is JSON, else ``text`` or ``bytes``."""

    failed_attempts: list[Attempt]


class NodeInFull(Node, frozen=True, kw_only=True):
    """A node, with its live state.

    Attributes:
        live: null where the node does not answer, or the actor may not see it.
        problem: why it is null.
    """

    live: LiveNode | None
    problem: str | None


@dataclass(frozen=True, kw_only=True)
class Differences:
    """Where a view differs from its struct: fields that it has not, and fields that it reads in another way."""

    without: Collection[str] = ()
    more: Mapping[str, tuple[Any, Read]] = field(default_factory=dict)


def _attribute(name: str) -> Read:
    get = attrgetter(name)
    return lambda value, _: get(value)


def _decoded(text: str | None) -> Any:
    """The value of a JSON text; the text itself where SQL by hand has written something else."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def _decoded_object(text: str | None) -> dict[str, Any] | None:
    found = _decoded(text)
    return found if isinstance(found, dict) else None


def _text_body(task: Task) -> str | None:
    is_json = task.body is None or task.json is not None or task.body.strip() == "null"
    return None if is_json else task.body


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _request_result(request: NodeRequest) -> dict[str, Any] | None:
    return _decoded_object(request.result) if request.status is NodeRequestStatus.DONE else None


TASK: Final = frozenset({"body", "body_bytes", "failures", "result"})
NODE: Final = frozenset({"id", "incarnation", "revision"})
DIFFERENCES: Final[Mapping[type[msgspec.Struct], Differences]] = {
    Task: Differences(without=TASK),
    TaskInFull: Differences(
        without=TASK,
        more={
            "body": (Any, lambda task, _: None if task.body is None else task.json),
            "text": (str | None, lambda task, _: _text_body(task)),
            "bytes": (str | None, lambda task, _: _base64(task.body_bytes)),
            "result": (Any, lambda task, _: _decoded(task.result)),
        },
    ),
    Attempt: Differences(without={"id", "task_id"}),
    Node: Differences(without=NODE),
    NodeInFull: Differences(without=NODE),
    LiveNode: Differences(without={"node", "reloads"}),
    ProcessRecord: Differences(
        without={"incarnation", "slots"},
        more={"state": (str, lambda process, nodes: process_state(process, nodes.get(process.node_id)))},
    ),
    NodeRequest: Differences(
        without={NODE_ID, "incarnation", "expires_at", "is_reachable"},
        more={
            "arguments": (dict[str, Any], lambda request, _: _decoded_object(request.arguments) or {}),
            "result": (dict[str, Any] | None, lambda request, _: _request_result(request)),
        },
    ),
    ScheduleRun: Differences(without={"number", "args", NODE_ID, "incarnation", "pid", "created_at"}),
    BulkAction: Differences(
        without={"most"},
        more={"limit": (int | None, _attribute("most")), "progress": (float | None, _attribute("progress"))},
    ),
    AlertRecord: Differences(more={"queue": (str | None, _attribute("queue"))}),
    TaskLogLine: Differences(more={"cursor": (str, _attribute("cursor"))}),
}


class View:
    """How a struct is shown."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._kind = kind
        self._differences = DIFFERENCES.get(kind, Differences())

    @cached_property
    def type(self) -> type[msgspec.Struct]:
        """The struct of the view."""
        described = descriptions_in(self._kind, "Attributes")
        fields = [
            (name, Annotated[kind, Meta(description=described[name])] if name in described else kind)
            for name, (kind, _) in self.fields.items()
        ]
        namespace = {"__doc__": self._kind.__doc__}
        return msgspec.defstruct(self._kind.__name__, fields, module=__name__, namespace=namespace)

    @cached_property
    def fields(self) -> dict[str, tuple[Any, Read]]:
        """The fields of the view by their names, each with its type and how it is read."""
        own = [one for one in msgspec.structs.fields(self._kind) if one.name not in self._differences.without]
        return dict(_field(one.name, one.type) for one in own) | dict(self._differences.more)

    def of(self, value: msgspec.Struct, nodes: Nodes) -> msgspec.Struct:
        """The view of a value."""
        return self.type(*(read(value, nodes) for _, read in self.fields.values()))


def _field(name: str, kind: Any) -> tuple[str, tuple[Any, Read]]:
    get, is_optional = attrgetter(name), type(None) in get_args(kind)
    if name.endswith(NODE_ID):
        return name.removesuffix("_id"), (str | None, lambda value, nodes: _node_name(get(value), nodes))
    if (name in IDS or name.endswith("_id")) and (kind is int or int in get_args(kind)):
        return name, (str | None if is_optional else str, lambda value, _: _text_of(get(value)))
    shown = view_type(kind)
    if shown == kind:
        return name, (kind, lambda value, _: get(value))
    return name, (shown, lambda value, nodes: view(get(value), nodes))


def _node_name(node_id: int | None, nodes: Nodes) -> str | None:
    if node_id is None:
        return None
    return nodes[node_id].name if node_id in nodes else f"node {node_id}"


def _text_of(number: int | None) -> str | None:
    return None if number is None else str(number)


@cache
def view_of(kind: type[msgspec.Struct]) -> View:
    """How a struct is shown."""
    return View(kind)


def view_type(kind: Any) -> Any:
    """The type of the views of a type; the actions of tasks, which have tags, are shown as they are."""
    if _is_shown(kind):
        return view_of(kind).type
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is frozenset:  # which is shown in order
        return list[view_type(arguments[0])]  # type: ignore[misc]  # a type that is made here
    shown = tuple(view_type(one) for one in arguments)
    if shown == arguments:
        return kind
    return Union[shown] if origin in {Union, UnionType} else origin[shown]  # noqa: UP007 - of types known at run time


def shows_nodes(kind: Any) -> bool:
    """Whether the views of a type have names of nodes."""
    if _is_shown(kind):
        without = DIFFERENCES.get(kind, Differences()).without
        shown = [one for one in msgspec.structs.fields(kind) if one.name not in without]
        return any(one.name == NODE_ID or shows_nodes(one.type) for one in shown)
    return any(map(shows_nodes, get_args(kind)))


def view(value: Any, nodes: Nodes) -> Any:
    """What is shown of a value, for msgspec to encode."""
    match value:
        case msgspec.Struct() if _is_shown(type(value)):
            return view_of(type(value)).of(value, nodes)
        case list() | tuple():
            return [view(one, nodes) for one in value]
        case frozenset():
            return sorted(value)
        case dict():
            return {key: view(one, nodes) for key, one in value.items()}
        case _:
            return value


def _is_shown(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag is None
