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
from peerd.web.pages.navigation_facts import NavigationFacts
from peerd.web.pages.read_cache import ReadCache
from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.routes import (
    access,
    alerts,
    bulk,
    disks,
    files,
    handlers,
    logs,
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
        self._navigation = NavigationFacts()
        self.routes: list[Route] = []

    def page(self, path: str, handler: Handler) -> None:
        """Answer GET requests for a path."""

        async def answer(request: Request) -> Response:
            page = self._page(request)
            await self._navigation.find_for(page)
            try:
                return await handler(page)
            except PeerdError as error:
                return error_page(page, error)

        self.routes.append(Route(path, answer, methods=["GET"], name=f"page {path}"))

    def form(self, path: str, handler: FormHandler) -> None:
        """Answer POST requests for a path: the form is read, and its token compared, before the handler is called."""

        async def answer(request: Request) -> Response:
            page = self._page(request)
            await self._navigation.find_for(page)
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


PAGES: Final[dict[str, Handler]] = {
    "/": overview.show_overview,
    "/login": sessions.show_login,
    "/account": sessions.show_account,
    "/tasks": tasks.show_tasks,
    "/tasks/find": tasks.find_task,
    "/tasks/export.{form:str}": tasks.export_tasks,
    "/errors": handlers.show_errors,
    "/handlers": handlers.show_handlers,
    "/logs": logs.show_logs,
    "/tasks/{key:id}": task.show_task,
    "/tasks/{key:id}/stack": task.show_stack,
    "/tasks/{key:id}/preview/{number:id}": task.show_preview,
    "/tasks/{key:id}/download/body": partial(task.download_value, "body"),
    "/tasks/{key:id}/download/result": partial(task.download_value, "result"),
    "/bulk": bulk.show_bulks,
    "/bulk/new": bulk.new_bulk,
    "/bulk/{key:id}": bulk.show_bulk,
    "/queues": queues.show_queues,
    "/queues/show": queues.show_queue,
    "/limits": queues.show_limits,
    "/nodes": nodes.show_nodes,
    "/nodes/show": nodes.show_node,
    "/nodes/state": nodes.show_state,
    "/nodes/request/{key:id}": nodes.show_request,
    "/processes": nodes.show_processes,
    "/schedules": schedules.show_schedules,
    "/schedules/show": schedules.show_schedule,
    "/storage": storage.show_storage,
    "/files": files.show_buckets,
    "/files/list": files.show_files,
    "/files/show": files.show_file,
    "/files/download": files.download_file,
    "/disks": disks.show_disks,
    "/disks/{key:id}": disks.show_disk,
    "/alerts": alerts.show_alerts,
    "/users": access.show_users,
    "/tokens": access.show_tokens,
    "/tokens/new": access.new_token,
    "/audit": access.show_audit,
}
"""What answers a GET request for a path."""
FORMS: Final[dict[str, FormHandler]] = {
    "/login": sessions.log_in,
    "/logout": sessions.log_out,
    "/account": sessions.change_password,
    "/theme": sessions.choose_theme,
    "/tasks/selection": bulk.confirm_selection,
    "/tasks/selection/do": bulk.act_on_selection,
    "/bulk": bulk.create_bulk,
    "/tokens": access.create_token,
}
"""What answers a POST request for a path."""
ACTIONS = ActionRegistry(*TASK_ACTIONS, *CLUSTER_ACTIONS, *FILE_ACTIONS, *ACCESS_ACTIONS)


def add_dashboard(app: FastAPI) -> None:
    """Add all pages to an app, which has its handlers of errors already."""
    made = Dashboard(ACTIONS)
    made.action_routes()  # first: pages of ids have the form of some of them
    for path, handler in PAGES.items():
        made.page(path, handler)
    for path, form_handler in FORMS.items():
        made.form(path, form_handler)
    made.error_pages(app)
    app.router.routes.extend(made.routes)
    app.router.routes.append(Route(f"{PATH}/{{name}}", answer_static, methods=["GET"]))
