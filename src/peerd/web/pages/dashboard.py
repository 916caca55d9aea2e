"""Adds the pages to the app: their routes, the page and the form of each action, and errors as pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from fastapi import FastAPI
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from peerd.domain.access import Actor
from peerd.domain.errors import NotPermitted, PeerdError
from peerd.operate.client import AioClient
from peerd.operate.guard import OperationCall
from peerd.web.access.authentication import AccessRefused
from peerd.web.access.request_facts import route_path
from peerd.web.dependencies import acting_client, program_client
from peerd.web.pages.access_actions import ACCESS_ACTIONS
from peerd.web.pages.actions import ActionCall, ActionRegistry, PageAction
from peerd.web.pages.addresses import safe_path
from peerd.web.pages.cluster_actions import CLUSTER_ACTIONS
from peerd.web.pages.file_actions import FILE_ACTIONS
from peerd.web.pages.formats import one_line
from peerd.web.pages.forms import BACK, leave_notice, read_form
from peerd.web.pages.navigation import NavigationReader
from peerd.web.pages.read_cache import ReadCache
from peerd.web.pages.rendering import STATIC_PATH, PageRequest, answer_static, error_page, plain_error_page
from peerd.web.pages.routes import access, bulk, handlers, nodes, overview, queues, sessions, storage, task, tasks
from peerd.web.pages.series_history import SeriesHistory
from peerd.web.pages.task_actions import BULK_ACTIONS, TASK_ACTIONS
from peerd.web.problems import status_of
from peerd.web.request_guard import ACTOR, is_page

Handler: TypeAlias = Callable[[PageRequest], Awaitable[Response]]
ProblemHandler: TypeAlias = Callable[..., Any]
"""A handler of the API, which answers with a problem."""
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
        self._navigation = NavigationReader()
        self.routes: list[Route] = []

    def page(self, path: str, handler: Handler) -> None:
        """Answer GET requests for a path."""
        self._add("GET", f"page {path}", path, handler)

    def form(self, path: str, handler: FormHandler) -> None:
        """Answer POST requests for a path: the form is read, and its token compared, before the handler is called."""

        async def take(page: PageRequest) -> Response:
            response = await handler(page, await read_form(page.request))
            self.cache.forget()
            return response

        self._add("POST", f"form {path}", path, take)

    def _add(self, method: str, name: str, path: str, handler: Handler) -> None:
        async def answer(request: Request) -> Response:
            page = self._page(request)
            page.facts = await self._navigation.read(page.client)
            try:
                return await handler(page)
            except (PeerdError, AccessRefused) as error:
                return error_page(page, error)

        self.routes.append(Route(path, answer, methods=[method], name=name))

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
        client = acting_client(request) if ACTOR in request.scope else _anonymous(request)
        return PageRequest(request, client, self.cache, self.history, self.actions)


def _anonymous(request: Request) -> AioClient:
    """The client of a viewer that has not logged in: it may do nothing."""
    return program_client(request).acting_as(Actor(name=""))


async def confirm_action(action: PageAction, page: PageRequest) -> Response:
    """What will happen, what is asked for, and a button that does it."""
    _require_right(page, action)
    prefilled = {name: value for name, value in page.query.pairs if name not in {"name", BACK}}
    call = ActionCall(page.client, _key_of(page), prefilled)
    return await _action_form(page, action, call, _page_before(page, action, call))


async def do_action(action: PageAction, page: PageRequest, fields: list[tuple[str, str]]) -> Response:
    """Do it, and go back with a notice; where it is refused, show the form again with the reason."""
    values = dict(fields)
    given_back = safe_path(values.pop(BACK, None))
    await _require_right_to_do(page, action, values)
    call = ActionCall(page.client, _key_of(page), values)
    back = given_back or _page_before(page, action, call)
    try:
        done = await action.do(call)
    except PeerdError as error:
        return await _action_form(page, action, call, back, str(error), status_of(error) or HTTPStatus.CONFLICT)
    except ValueError as error:
        return await _action_form(page, action, call, back, str(error), HTTPStatus.BAD_REQUEST)
    response = page.redirect(done.address or back)
    leave_notice(response, done.notice, done.undo)
    return response


def _key_of(page: PageRequest) -> str:
    """What the action acts on: the id of the path, or the name of the query."""
    return str(page.request.path_params.get("key", page.name))


def _page_before(page: PageRequest, action: PageAction, call: ActionCall) -> str:
    """The page that the address names, or the one that shows what the action acts on."""
    shown = action.subject.page(call.key) if call.key else f"/{action.subject}"
    return safe_path(page.query.get(BACK)) or shown


def _require_right(page: PageRequest, action: PageAction) -> None:
    if not action.is_for(page.actor):
        needed = f"it needs the right {action.right}" + (", of all queues" if action.needs_all_queues else "")
        raise NotPermitted(page.actor.name, action.id, needed)


async def _require_right_to_do(page: PageRequest, action: PageAction, values: Mapping[str, str]) -> None:
    """Require the right to do an action; a refusal has its entry in the audit log, as the operation's has."""
    try:
        _require_right(page, action)
    except NotPermitted as error:
        mode, arguments = page.client.mode.blocking, {"key": _key_of(page), **values}
        call = OperationCall(action.operation or action.id, page.actor, mode.masker, arguments, mode.refusals)
        await page.client.mode.execute(call.refused(error))


async def _action_form(
    page: PageRequest,
    action: PageAction,
    call: ActionCall,
    back: str,
    problem: str | None = None,
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    fields = await action.fields_of(call)
    title = f"{action.label}: {one_line(call.key, 60)}" if call.key else action.label
    return page.render(
        "confirm.html",
        title,
        status,
        action=action,
        address=action.address(call.key),
        effect=action.effect.format(key=call.key),
        warning=None if action.warning is None else await action.warning(call),
        fields=fields,
        values=call.values,
        problem=problem,
        back=back,
    )


PAGES: Final[dict[str, Handler]] = {
    "/": overview.show_overview,
    "/login": sessions.show_login,
    "/account": sessions.show_account,
    "/tasks": tasks.show_tasks,
    "/tasks/find": tasks.find_task,
    "/tasks/export.{form:str}": tasks.export_tasks,
    "/errors": handlers.show_errors,
    "/handlers": handlers.show_handlers,
    "/logs": handlers.show_logs,
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
    "/schedules": queues.show_schedules,
    "/schedules/show": queues.show_schedule,
    "/storage": storage.show_storage,
    "/files": storage.show_buckets,
    "/files/list": storage.show_files,
    "/files/show": storage.show_file,
    "/files/download": storage.download_file,
    "/disks": storage.show_disks,
    "/disks/{key:id}": storage.show_disk,
    "/alerts": overview.show_alerts,
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
ACTIONS = ActionRegistry(*TASK_ACTIONS, *BULK_ACTIONS, *CLUSTER_ACTIONS, *FILE_ACTIONS, *ACCESS_ACTIONS)


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
    app.router.routes.append(Route(f"{STATIC_PATH}/{{name}}", answer_static, methods=["GET"]))
