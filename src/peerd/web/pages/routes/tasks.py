"""The table of tasks: filters in the address, columns to choose, pages by key, and export."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse

from peerd.domain.column_condition import COLUMNS, TIME_COLUMNS
from peerd.domain.errors import InvalidFilter, PeerdError
from peerd.domain.lifecycle import Status
from peerd.domain.task import Task
from peerd.operate.client import AioClient
from peerd.operate.figures import StatisticsRow
from peerd.operate.task_filter import TaskFilter
from peerd.store.tasks.counts import TaskCounts
from peerd.store.tasks.pages import TaskPage
from peerd.web.pages.addresses import UrlQuery
from peerd.web.pages.formats import one_line
from peerd.web.pages.headers import PAGE_HEADERS
from peerd.web.pages.rendering import PageRequest, status_with, unless_invalid
from peerd.web.pages.task_actions import EVENT_OF, TASK_ACTIONS
from peerd.web.views import Nodes, view, view_of

T = TypeVar("T")

PAGE_SIZES: Final = (50, 100, 200)
EXPORT_PAGE: Final = 1_000
COUNTS_FRESH_FOR: Final = 5.0
"""Seconds for which the counts of the tabs are shared, tens of thousands of entries, and what the filter proposes."""
SHOWN_AT_FIRST: Final = ("status", "queue", "name", "priority", "attempts", "node", "created_at", "error")
SHOWN_OF: Final[dict[str | None, tuple[str, ...]]] = {
    Status.WORKING: ("queue", "name", "worker_node", "worker_started_at", "progress", "progress_note", "attempts"),
    Status.PENDING: ("queue", "name", "priority", "start_at", "node", "created_at", "attempts"),
    Status.SCHEDULED: ("start_at", "queue", "name", "priority", "node", "created_at"),
    Status.FAILURE: ("error", "queue", "name", "attempts", "start_at", "worker_node"),
    Status.DEAD: ("error", "queue", "name", "attempts", "worker_node", "finished_at"),
    Status.CANCELED: ("error", "queue", "name", "attempts", "finished_at"),
    Status.DONE: ("queue", "name", "worker_node", "attempts", "finished_at"),
}
"""The columns that say most of a status; the viewer may choose others."""
LABELS: Final = {
    "name": "Handler",
    "node": "Pinned to",
    "worker_node": "Node",
    "worker_started_at": "Since",
    "created_at": "Enqueued",
    "start_at": "Due",
    "finished_at": "Ended",
    "progress_note": "Note",
}
"""What columns are called that have a shorter word."""
OPTIONAL: Final = (
    *(
        "worker_node",
        "max_attempts",
        "failures",
        "crashes",
        "start_at",
        "finish_at",
        "worker_started_at",
        "checked_at",
        "progress",
    ),
    *("progress_note", "finished_at", "updated_at", "timeout", "unique_key", "limit_key", "process_id", "lease"),
    *("deadline_at", "ttr", "delay", "reserves", "timeouts", "releases", "buries", "kicks", "bulk_id", "trace_context"),
)
NUMBERS: Final = frozenset(
    {"priority", "attempts", "failures", "crashes", "max_attempts", "process_id", "lease", "ttr", "delay", "timeout"}
    | {"reserves", "timeouts", "releases", "buries", "kicks"}
)
"""Columns that are aligned at their right."""
CHOICES: Final = (*SHOWN_AT_FIRST, *OPTIONAL)
OPERATORS: Final = {"=": "is", "!=": "is not", "~": "contains", ">": "above", ">=": "from", "<": "below", "<=": "up to"}
SPANS: Final = {"": "any time", "15m": "15 minutes", "1h": "an hour", "1d": "a day", "7d": "a week"}
WITHIN: Final = {f"{column}>-{span}": (column, span) for column in TIME_COLUMNS for span in SPANS if span}
"""The conditions that *Within* makes, and its fields."""
SELECTION: Final = {
    action.verb: action for action in TASK_ACTIONS if action.verb in EVENT_OF and action.verb != "change"
}
"""What is done to tasks that are selected."""
FILTER_NAMES: Final = ("queue", "name", "status", "node", "search")


class TaskTable(msgspec.Struct, frozen=True, kw_only=True):
    """What the address of a table of tasks asks for."""

    filter: TaskFilter
    columns: tuple[str, ...]
    size: int
    after: str | None

    @property
    def has_conditions(self) -> bool:
        """Whether it shows some tasks and not all."""
        return self.filter != TaskFilter()


def read_address(query: UrlQuery) -> TaskTable:
    """The table of an address. A condition that is typed has its parts in fields of their own."""
    shown = SHOWN_OF.get(query.get("status"), SHOWN_AT_FIRST)
    columns = tuple(name for name in query.all("column") if name in CHOICES) or shown
    size = query.get("size", "") or ""
    return TaskTable(
        filter=TaskFilter(where=tuple(query.all("where")), **{name: query.get(name) for name in FILTER_NAMES}),
        columns=columns,
        size=int(size) if size in map(str, PAGE_SIZES) else PAGE_SIZES[0],
        after=query.get("after"),
    )


async def show_tasks(page: PageRequest) -> Response:
    """A page of the table."""
    if (address := _with_typed_condition(page.query)) is not None:
        return page.redirect(address.address("/tasks"))
    table = read_address(page.query)
    client, queue = page.client, table.filter.queue
    (listed, problem), nodes, counted, handlers = await asyncio.gather(
        unless_invalid(partial(read_table, page, table), TaskPage(items=[], next=None, examined=0)),
        page.read("nodes", client.nodes.list),
        _unless_refused(
            page.read(("task counts", queue), lambda: client.statistics.counts(queue=queue), COUNTS_FRESH_FOR),
            TaskCounts({}, frozenset()),
        ),
        _unless_refused(
            page.read("handlers", lambda: client.statistics.summary("1h", by="handler"), COUNTS_FRESH_FOR),
            list[StatisticsRow](),
        ),
    )
    by_id = {node.id: node for node in nodes}
    return page.render(
        "tasks.html",
        "Tasks",
        status_with(problem),
        wanted=table,
        heads=[("Id", "tight"), *(_head(column) for column in table.columns)],
        tasks=[_as_row(task, by_id) for task in listed.items],
        next=listed.next,
        examined=listed.examined,
        problem=problem,
        tabs=[(one, counted.counts.get(one, 0), one in counted.at_least) for one in Status],
        known={
            "queue": sorted({str(row.queue) for row in handlers}),
            "name": sorted({row.name for row in handlers if row.name}),
            "node": sorted(node.name for node in nodes),
        },
        within=next((WITHIN[one] for one in reversed(table.filter.where) if one in WITHIN), ("updated_at", "")),
        selection=SELECTION,
        label_of=label_of,
        columns=CHOICES,
        time_columns=TIME_COLUMNS,
        filter_columns=COLUMNS,
        operators=OPERATORS,
        spans=SPANS,
        sizes=PAGE_SIZES,
        filter_query=_filter_query(page.query),
        live="" if table.after else "type=task" + (f"&{UrlQuery((('queue', queue),)).text}" if queue else ""),
    )


async def _unless_refused(reading: Awaitable[T], otherwise: T) -> T:
    """What is read, but of a queue that cannot be, or is none of the viewer's: it has no task here either."""
    with suppress(PeerdError):
        return await reading
    return otherwise


def label_of(column: str) -> str:
    """What a column is called on pages.

    >>> label_of("name"), label_of("max_attempts")
    ('Handler', 'Max attempts')
    """
    return LABELS.get(column) or column.replace("_", " ").capitalize()


def _head(column: str) -> str | tuple[str, str]:
    """The head of a column: its label, and how its values are aligned."""
    label = label_of(column)
    return (label, "number") if column in NUMBERS else label


async def read_table(page: PageRequest, table: TaskTable) -> Any:
    """A page of tasks without their bodies."""
    options = msgspec.structs.asdict(table.filter)
    key = ("tasks", tuple(options.items()), table.after, table.size)
    return await page.read(
        key, lambda: page.client.tasks.page(**options, after=table.after, limit=table.size, bodies=False)
    )


async def find_task(page: PageRequest) -> Response:
    """What the field in the head finds: a task by its id, those of a unique key, or a text."""
    text = (page.query.get("q") or "").strip()
    if not text:
        return page.redirect("/tasks")
    if text.isascii() and text.isdecimal() and len(text) < 19:
        return page.redirect(f"/tasks/{int(text)}")
    with_key = await page.client.tasks.page(where=[f"unique_key={text}"], limit=1, bodies=False)
    if with_key.items:
        return page.redirect(UrlQuery((("where", f"unique_key={text}"),)).address("/tasks"))
    return page.redirect(UrlQuery((("search", text),)).address("/tasks"))


async def export_tasks(page: PageRequest) -> Response:
    """All tasks of the filter, as CSV or as a JSON object a line; read page by page while it is sent."""
    table = read_address(page.query)
    form = page.request.path_params["form"]
    first = await page.client.tasks.page(**msgspec.structs.asdict(table.filter), limit=EXPORT_PAGE)
    nodes = {node.id: node for node in await page.client.nodes.list()}
    tasks = _all(page.client, table, first)
    content: AsyncIterable[str | bytes]
    if form == "csv":
        content, media_type = _csv_lines(tasks, nodes), "text/csv; charset=utf-8"
    elif form == "jsonl":
        content, media_type = _json_lines(tasks, nodes), "application/jsonl"
    else:
        raise InvalidFilter("form", f"tasks are exported as csv or jsonl, not as {one_line(form, 40)}")
    headers = {**PAGE_HEADERS, "content-disposition": f'attachment; filename="tasks.{form}"'}
    return StreamingResponse(content, media_type=media_type, headers=headers)


async def _all(client: AioClient, table: TaskTable, first: Any) -> AsyncIterator[Task]:
    found = first
    while True:
        for task in found.items:
            yield task
        if found.next is None:
            return
        found = await client.tasks.page(**msgspec.structs.asdict(table.filter), after=found.next, limit=EXPORT_PAGE)


def _as_row(task: Task, nodes: Nodes) -> Any:
    return msgspec.structs.replace(view(task, nodes), attempts=task.attempts_made)


def _exported(task: Task, nodes: Nodes) -> dict[str, Any]:
    return {**msgspec.to_builtins(view(task, nodes)), "body": task.body, "result": task.result}


async def _csv_lines(tasks: AsyncIterator[Task], nodes: Nodes) -> AsyncIterator[str]:
    columns = [*view_of(Task).fields, "body", "result"]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns)
    writer.writeheader()
    async for task in tasks:
        writer.writerow({name: spreadsheet_text(value) for name, value in _exported(task, nodes).items()})
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def spreadsheet_text(value: object) -> object:
    """A value that no spreadsheet takes for a formula (OWASP, CSV injection).

    >>> spreadsheet_text("=1+1"), spreadsheet_text(-5), spreadsheet_text("plain")
    ("'=1+1", -5, 'plain')
    """
    return f"'{value}" if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"} else value


async def _json_lines(tasks: AsyncIterator[Task], nodes: Nodes) -> AsyncIterator[bytes]:
    async for task in tasks:
        yield msgspec.json.encode(_exported(task, nodes)) + b"\n"


def _with_typed_condition(query: UrlQuery) -> UrlQuery | None:
    """The address with the condition of the form's fields; None if nothing was typed into them."""
    column, operator, value = (query.get(name) for name in ("where-column", "where-operator", "where-value"))
    since_column, since = query.get("since-column"), query.get("since")
    typed = {"where-column", "where-operator", "where-value", "since-column", "since"} & {
        name for name, _ in query.pairs
    }
    if not typed:
        return None
    conditions = query.all("where")
    if column and operator in OPERATORS and value:
        conditions.append(f"{column}{operator}{value}")
    if since_column in TIME_COLUMNS:  # the form was sent, which says all of it
        conditions = [one for one in conditions if one not in WITHIN]
        conditions += [f"{since_column}>-{since}"] if since else []
    return query.with_mapping(dict.fromkeys((*typed, "after")) | {"where": conditions})


def _filter_query(query: UrlQuery) -> UrlQuery:
    """The part of an address that selects tasks."""
    return UrlQuery(tuple((name, value) for name, value in query.pairs if name in {*FILTER_NAMES, "where"}))
