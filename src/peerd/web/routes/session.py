"""The session of a browser: log in, show the actor, log out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.datastructures import Headers

from peerd.domain.access import Actor, ActorKind, Right
from peerd.domain.task import NAME_LIMIT
from peerd.operate.operations import Query
from peerd.operate.passwords import MAX_LENGTH
from peerd.web.access.login import LoginRequest, LoginService, close_session
from peerd.web.access.request_facts import SECURE_COOKIE, address_of, cookie_name, csrf_token, session_of
from peerd.web.dependencies import ActorDependency, AppAccessDependency, ProgramClientDependency
from peerd.web.fields import RequestBody
from peerd.web.problems import documented

router = APIRouter(prefix="/session", tags=["access"])
NO_CONTROLS = "^[^\x00-\x1f\x7f-\x9f]+$"


class Login(RequestBody):
    """A name and a password."""

    name: str = Field(min_length=1, max_length=NAME_LIMIT, pattern=NO_CONTROLS, examples=["ann"])
    password: Annotated[str, Field(min_length=1, max_length=MAX_LENGTH, examples=["correct horse battery staple"])]


class SessionView(BaseModel):
    """The actor of the request."""

    name: str = Field(examples=["ann"])
    kind: ActorKind
    rights: list[Right]
    queues: list[str] | None = Field(description="The queues that it is restricted to; null: it is not.")
    csrf_token: str | None = Field(
        description="Of a session: goes into the header X-CSRF-Token of each request that changes something."
    )

    @classmethod
    def of(cls, actor: Actor, session_id: str | None) -> SessionView:
        """The view of an actor."""
        queues = None if actor.queues is None else sorted(actor.queues)
        token = None if session_id is None or actor.kind is not ActorKind.USER else csrf_token(session_id)
        return cls(name=actor.name, kind=actor.kind, rights=sorted(actor.rights), queues=queues, csrf_token=token)


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses=documented(HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.TOO_MANY_REQUESTS),
    response_model=SessionView,
)
async def log_in(
    request: Request, body: Login, client: ProgramClientDependency, access: AppAccessDependency
) -> Response:
    """Log in. The session is in a cookie; a session that the browser had before ends."""
    logins: LoginService = request.app.state.peerd_logins
    scope = request.scope
    old = session_of(scope, Headers(scope=scope))
    given = LoginRequest(body.name, body.password, address_of(scope), old)
    session_id, actor = await logins.log_in(client, given)
    view = SessionView.of(actor, session_id)
    response = JSONResponse(view.model_dump(mode="json"), HTTPStatus.CREATED)
    name = cookie_name(scope)
    response.set_cookie(
        name,
        session_id,
        max_age=int(access.settings_of(scope).session_age),
        path="/",
        secure=name == SECURE_COOKIE,
        httponly=True,
        samesite="lax",
    )
    return response


@router.get("", responses=documented())
async def show(request: Request, actor: ActorDependency) -> SessionView:
    """The actor of this request, and what it may do."""
    return SessionView.of(actor, session_of(request.scope, request.headers))


@router.delete("", status_code=HTTPStatus.NO_CONTENT, responses=documented(), response_class=Response)
async def log_out(request: Request, actor: ActorDependency, client: ProgramClientDependency) -> Response:
    """Log out: the session ends. Without one, nothing happens."""
    session_id = session_of(request.scope, request.headers)
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    if session_id is not None and actor.kind is ActorKind.USER:
        await client.mode.execute(Query("run", close_session, session_id, actor))
        name = cookie_name(request.scope)
        response.delete_cookie(name, path="/", secure=name == SECURE_COOKIE, httponly=True, samesite="lax")
    return response
