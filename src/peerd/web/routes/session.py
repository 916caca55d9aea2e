"""The session of a browser: log in, show the actor, change the own password, log out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.datastructures import Headers

from peerd.domain.access import Actor, ActorKind, Right
from peerd.domain.task import NAME_LIMIT
from peerd.operate.client import AioClient
from peerd.operate.operations import Query
from peerd.operate.passwords import MAX_LENGTH, MIN_LENGTH, checked
from peerd.web.access.authentication import AppAccess
from peerd.web.access.login import (
    LoginRequest,
    LoginService,
    close_session,
    remove_session_cookie,
    require_session,
    set_session_cookie,
)
from peerd.web.access.request_facts import address_of, csrf_token, session_of
from peerd.web.dependencies import ActorDependency, AppAccessDependency, ProgramClientDependency
from peerd.web.fields import RequestBody
from peerd.web.problems import documented

router = APIRouter(prefix="/session", tags=["access"])
PresentPassword = Annotated[str, Field(min_length=1, max_length=MAX_LENGTH, examples=["correct horse battery staple"])]
NO_CONTROLS = "^[^\x00-\x1f\x7f-\x9f]+$"


class Login(RequestBody):
    """A name and a password."""

    name: str = Field(min_length=1, max_length=NAME_LIMIT, pattern=NO_CONTROLS, examples=["ann"])
    password: PresentPassword


class OwnPassword(RequestBody):
    """The password of the user of the session, and another one in its place."""

    current: PresentPassword
    new: str = Field(min_length=MIN_LENGTH, max_length=MAX_LENGTH, examples=["another long password"])


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
    scope = request.scope
    given = LoginRequest(body.name, body.password, address_of(scope), session_of(scope, Headers(scope=scope)))
    return await _open(request, given, client, access, HTTPStatus.CREATED)


@router.put(
    "/password",
    responses=documented(HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.TOO_MANY_REQUESTS),
    response_model=SessionView,
)
async def change_password(
    request: Request,
    body: OwnPassword,
    actor: ActorDependency,
    client: ProgramClientDependency,
    access: AppAccessDependency,
) -> Response:
    """Change the password of the user that has logged in. All its sessions end; this browser gets a new one."""
    require_session(actor)
    new = checked(body.new, "new")
    given = LoginRequest(actor.name, body.current, address_of(request.scope), None, new_password=new)
    return await _open(request, given, client, access, HTTPStatus.OK)


async def _open(
    request: Request, given: LoginRequest, client: AioClient, access: AppAccess, status: HTTPStatus
) -> Response:
    """Log in, and answer with the new session and its cookie."""
    logins: LoginService = request.app.state.peerd_logins
    session_id, actor = await logins.log_in(client, given)
    response = JSONResponse(SessionView.of(actor, session_id).model_dump(mode="json"), status)
    set_session_cookie(request, response, session_id, access)
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
        remove_session_cookie(request, response)
    return response
