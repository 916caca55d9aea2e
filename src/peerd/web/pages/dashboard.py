"""Adds the pages to the app: their routes, their actions, and errors as pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from fastapi import FastAPI
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from peerd.domain.errors import PeerdError
from peerd.web.access.authentication import AccessRefused
from peerd.web.access.request_facts import route_path
from peerd.web.dependencies import acting_client, program_client
from peerd.web.pages.access_actions import ACCESS_ACTIONS
from peerd.web.pages.action_pages import confirm_action, do_action
from peerd.web.pages.actions import ActionRegistry
from peerd.web.pages.charts.series_history import SeriesHistory
from peerd.web.pages.cluster_actions import CLUSTER_ACTIONS
from peerd.web.pages.errors import error_page, plain_error_page
from peerd.web.pages.file_actions import FILE_ACTIONS
from peerd.web.pages.forms import FormRefused, read_form
from peerd.web.pages.read_cache import ReadCache
from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.routes import (
    access,
    alerts,
    bulk,
    disks,
    files,
    nodes,
    overview,
    queues,
    schedules,
    sessions,
    storage,
    task,
    tasks,
)
from peerd.web.pages.static_files import PATH, StaticFiles
from peerd.web.pages.storage_use import StorageUse
from peerd.web.pages.task_actions import TASK_ACTIONS
from peerd.web.request_guard import ACTOR, is_page

Handler: TypeAlias = Callable[[PageRequest], Awaitable[Response]]
ProblemHandler: TypeAlias = Callable[..., Any]
"""Of the API: it answers with a problem."""
ERROR_TEXTS: Final = {
    HTTPStatus.NOT_FOUND: "There is no such page.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This address takes a form, and has no page of its own.",
}
FormHandler: TypeAlias = Callable[[PageRequest, list[tuple[str, str]]], Awaitable[Response]]


class IdConvertor(Convertor[int]):
    """An id in a path: a number that a column of the tables can hold."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("id", IdConvertor())


class Dashboard:
    """The pages of one app."""

    def __init__(self, actions: ActionRegistry) -> None:
        self.cache = ReadCache()
        self.history = SeriesHistory()
        self.actions = actions
        self._storage = StorageUse()
        self.routes: list[Route] = []

    def page(self, path: str, handler: Handler) -> None:
        """Answer GET requests for a path."""

        async def answer(request: Request) -> Response:
            page = self._page(request)
            await self._storage.find_for(page)
            try:
                return await handler(page)
            except PeerdError as error:
                return error_page(page, error)

        self.routes.append(Route(path, answer, methods=["GET"], name=f"page {path}"))

    def form(self, path: str, handler: FormHandler) -> None:
        """Answer POST requests for a path: the form is read, and its token compared, before the handler is called."""

        async def answer(request: Request) -> Response:
            page = self._page(request)
            await self._storage.find_for(page)
            try:
                fields = await read_form(request)
                response = await handler(page, fields)
            except (PeerdError, FormRefused, AccessRefused) as error:
                return error_page(page, error)
            self.cache.forget()
            return response

        self.routes.append(Route(path, answer, methods=["POST"], name=f"form {path}"))

    def action_routes(self) -> None:
        """The page that confirms each action, and what its form does."""
        for action in self.actions:
            self.page(action.route, partial(confirm_action, action))
            self.form(action.route, partial(do_action, action))

    def error_pages(self, app: FastAPI) -> None:
        """Show a page to a viewer where the API would answer with a problem: no such page, or a defect."""
        for kind in (HTTPException, Exception):
            app.add_exception_handler(kind, partial(self._answer_error, app.exception_handlers[kind]))

    async def _answer_error(self, answer_problem: ProblemHandler, request: Request, error: Exception) -> Response:
        is_seen = request.method in {"GET", "HEAD"} and ACTOR in request.scope and is_page(route_path(request.scope))
        if not is_seen:
            problem: Response = await answer_problem(request, error)
            return problem
        status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
        detail = ERROR_TEXTS.get(status, "An unexpected error; the log of the web process has its traceback.")
        return plain_error_page(self._page(request), status, detail)

    def _page(self, request: Request) -> PageRequest:
        client = acting_client(request) if ACTOR in request.scope else sessions.anonymous(program_client(request))
        return PageRequest(request, client, self.cache, self.history, self.actions)


async def answer_static(request: Request) -> Response:
    """A file that pages need; anyone may read it."""
    return StaticFiles.answer(request.path_params["name"], request.query_params.get("v"))


ACTIONS = ActionRegistry(*TASK_ACTIONS, *bulk.BULK_ACTIONS, *CLUSTER_ACTIONS, *FILE_ACTIONS, *ACCESS_ACTIONS)


def add_dashboard(app: FastAPI) -> None:
    """Add all pages to an app, which has its handlers of errors already."""
    made = Dashboard(ACTIONS)
    made.page("/", overview.show_overview)
    made.page("/login", sessions.show_login)
    made.form("/login", sessions.log_in)
    made.form("/logout", sessions.log_out)
    made.page("/account", sessions.show_account)
    made.form("/account", sessions.change_password)
    made.form("/theme", sessions.choose_theme)
    made.page("/tasks", tasks.show_tasks)
    made.page("/tasks/find", tasks.find_task)
    made.page("/tasks/export.{form:str}", tasks.export_tasks)
    made.form("/tasks/selection", bulk.confirm_selection)
    made.form("/tasks/selection/do", bulk.act_on_selection)
    made.action_routes()  # before the pages of ids, which have the form of some of them
    made.page("/tasks/{key:id}", task.show_task)
    made.page("/tasks/{key:id}/stack", task.show_stack)
    made.page("/tasks/{key:id}/preview/{number:id}", task.show_preview)
    made.page("/tasks/{key:id}/download/body", partial(task.download_value, "body"))
    made.page("/tasks/{key:id}/download/result", partial(task.download_value, "result"))
    made.page("/bulk", bulk.show_bulks)
    made.form("/bulk", bulk.create_bulk)
    made.page("/bulk/new", bulk.new_bulk)
    made.page("/bulk/{key:id}", bulk.show_bulk)
    made.page("/queues", queues.show_queues)
    made.page("/queues/show", queues.show_queue)
    made.page("/limits", queues.show_limits)
    made.page("/nodes", nodes.show_nodes)
    made.page("/nodes/show", nodes.show_node)
    made.page("/nodes/state", nodes.show_state)
    made.page("/nodes/request/{key:id}", nodes.show_request)
    made.page("/processes", nodes.show_processes)
    made.page("/schedules", schedules.show_schedules)
    made.page("/schedules/show", schedules.show_schedule)
    made.page("/storage", storage.show_storage)
    made.page("/files", files.show_buckets)
    made.page("/files/list", files.show_files)
    made.page("/files/show", files.show_file)
    made.page("/files/download", files.download_file)
    made.page("/disks", disks.show_disks)
    made.page("/disks/{key:id}", disks.show_disk)
    made.page("/alerts", alerts.show_alerts)
    made.page("/users", access.show_users)
    made.page("/tokens", access.show_tokens)
    made.form("/tokens", access.create_token)
    made.page("/tokens/new", access.new_token)
    made.page("/audit", access.show_audit)
    made.error_pages(app)
    app.router.routes.extend(made.routes)
    app.router.routes.append(Route(f"{PATH}/{{name}}", answer_static, methods=["GET"]))
