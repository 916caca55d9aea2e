"""Log in, log out, the own password, and the colours."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from peerd.domain.access import ActorKind
from peerd.domain.errors import InvalidAccess
from peerd.domain.task import NAME_LIMIT
from peerd.operate.operations import Query
from peerd.operate.passwords import MAX_LENGTH, MIN_LENGTH, checked
from peerd.store.users import has_users
from peerd.web.access.login import (
    LoginRefused,
    LoginRequest,
    LoginService,
    close_session,
    remove_session_cookie,
    require_session,
    set_session_cookie,
)
from peerd.web.access.request_facts import address_of, session_of
from peerd.web.dependencies import find_access, program_client
from peerd.web.pages import rendering
from peerd.web.pages.actions import FormField
from peerd.web.pages.addresses import safe_path
from peerd.web.pages.forms import leave_notice
from peerd.web.pages.rendering import PageRequest

password_field = partial(FormField, kind="password", is_required=True, most=MAX_LENGTH)
PASSWORD_HINT: Final = f"At least {MIN_LENGTH} characters. All your other sessions end."
LOGIN_FIELDS: Final = (
    FormField("name", "Name", is_required=True, most=NAME_LIMIT, autocomplete="username"),
    password_field("password", "Password", autocomplete="current-password"),
)
PASSWORD_FIELDS: Final = (
    password_field("current", "Current password", autocomplete="current-password"),
    password_field("new", "New password", hint=PASSWORD_HINT, autocomplete="new-password"),
)


async def show_login(
    page: PageRequest,
    wanted: str | None = None,
    problem: str | None = None,
    status: HTTPStatus = HTTPStatus.OK,
    name: str = "",
) -> Response:
    """The form; after it, the viewer is where it wanted to be. Without users it says how the first one is made."""
    back = safe_path(wanted or page.query.get("next")) or "/"
    is_possible = await program_client(page.request).mode.execute(Query("read", has_users))
    fields = LOGIN_FIELDS if is_possible else ()
    return page.render("login.html", "Log in", status, fields=fields, values={"name": name}, next=back, problem=problem)


async def log_in(page: PageRequest, fields: list[tuple[str, str]]) -> Response:
    """Open a session."""
    given, request = dict(fields), page.request
    wanted = safe_path(given.get("next")) or "/"
    name = given.get("name", "")[:NAME_LIMIT]
    if not name.isprintable() or not name:
        problem = "type your name and your password"
        return await show_login(page, wanted, problem, HTTPStatus.UNPROCESSABLE_ENTITY, name)
    replaced = session_of(request.scope, request.headers)
    attempt = LoginRequest(name, given.get("password", "")[:MAX_LENGTH], address_of(request.scope), replaced)
    try:
        return await _open_session(page, attempt, wanted)
    except LoginRefused as refusal:
        return await show_login(page, wanted, str(refusal), refusal.status, name)


async def log_out(page: PageRequest, _: list[tuple[str, str]]) -> Response:
    """End the session."""
    request, session_id = page.request, session_of(page.request.scope, page.request.headers)
    response = page.redirect("/login")
    if session_id is not None and page.actor.kind is ActorKind.USER:
        await program_client(request).mode.execute(Query("run", close_session, session_id, page.actor))
        remove_session_cookie(request, response)
    return response


async def show_account(page: PageRequest, problem: str | None = None, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """The own rights and password."""
    return page.render("account.html", "Your account", status, fields=PASSWORD_FIELDS, problem=problem)


async def change_password(page: PageRequest, fields: list[tuple[str, str]]) -> Response:
    """Have another password from now on."""
    given = dict(fields)
    require_session(page.actor)
    try:
        new = checked(given.get("new", ""), "new")
        current = given.get("current", "")[:MAX_LENGTH]
        attempt = LoginRequest(page.actor.name, current, address_of(page.request.scope), None, new_password=new)
        response = await _open_session(page, attempt, "/account")
    except (InvalidAccess, LoginRefused) as refusal:
        status = refusal.status if isinstance(refusal, LoginRefused) else HTTPStatus.UNPROCESSABLE_ENTITY
        return await show_account(page, str(refusal), status)
    leave_notice(response, "Your password was changed. Your other sessions have ended.")
    return response


async def choose_theme(page: PageRequest, fields: list[tuple[str, str]]) -> Response:
    """Keep the colours in a cookie."""
    given = dict(fields)
    response = page.redirect(safe_path(given.get("back")) or "/")
    chosen = given.get("theme")
    if chosen in rendering.THEMES:
        response.set_cookie(
            rendering.THEME_COOKIE, chosen, max_age=rendering.THEME_MAX_AGE, path="/", samesite="lax", httponly=True
        )
    return response


async def _open_session(page: PageRequest, attempt: LoginRequest, wanted: str) -> Response:
    request = page.request
    logins: LoginService = request.app.state.peerd_logins
    session_id, _ = await logins.log_in(program_client(request), attempt)
    response = page.redirect(wanted)
    set_session_cookie(request, response, session_id, find_access(request))
    return response
