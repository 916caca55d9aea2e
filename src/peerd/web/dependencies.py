"""What routes receive: the client, which acts as the actor of the request."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request

from peerd.domain.access import Actor, Right
from peerd.domain.errors import NotPermitted, PeerdError
from peerd.operate.client import AioClient
from peerd.web.access.authentication import AccessRefused, AppAccess, Authentication
from peerd.web.request_guard import ACTOR

ACCESS_STATE: Final = "peerd_access"


def find_access(request: Request) -> AppAccess:
    """What the app was created with."""
    access: AppAccess = getattr(request.app.state, ACCESS_STATE)
    return access


def _actor(request: Request) -> Actor:
    """The actor of the request; without one, the route is not served."""
    actor = request.scope.get(ACTOR)
    if not isinstance(actor, Actor):
        raise RuntimeError("a route that needs an actor was reached without one")  # noqa: TRY004 - no wrong argument
    return actor


def program_client(request: Request) -> AioClient:
    """The client of the app itself, for what needs no actor."""
    return find_access(request).client_of(request.scope).aio


def acting_client(request: Request) -> AioClient:
    """The client, as the actor of a request."""
    return program_client(request).acting_as(_actor(request))


def _viewer_of_all(request: Request) -> Actor:
    """An actor that may see everything; raises `NotPermitted`."""
    actor = _actor(request)
    if not actor.may(Right.VIEW) or actor.queues is not None or actor.file_scopes is not None:
        raise NotPermitted(actor.name, "metrics", "it needs the right view, of all queues and files")
    return actor


async def find_actor_again(request: Request) -> Actor:
    """The actor of a request that lasts: its login may have ended meanwhile. Raises `AccessRefused`."""
    access = find_access(request)
    authentication = Authentication(access.settings_of(request.scope), access.authenticate)
    return await authentication.find_actor(request.scope, program_client(request))


AppAccessDependency = Annotated[AppAccess, Depends(find_access)]
ActorDependency = Annotated[Actor, Depends(_actor)]
ProgramClientDependency = Annotated[AioClient, Depends(program_client)]
AioClientDependency = Annotated[AioClient, Depends(acting_client)]
"""A client whose operations check the rights and the queues of the request's actor."""
ViewerOfAllDependency = Annotated[Actor, Depends(_viewer_of_all)]


async def may_still_view(request: Request) -> bool:
    """Whether the actor of a request that lasts may view what it could at its beginning."""
    try:
        found = await find_actor_again(request)
    except (PeerdError, AccessRefused):
        return False
    return found.may(Right.VIEW) and found.queues == _actor(request).queues
