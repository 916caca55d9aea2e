"""Users of the API."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from peerd.domain.access import Role
from peerd.domain.task import NAME_LIMIT
from peerd.operate.passwords import MAX_LENGTH, MIN_LENGTH
from peerd.store.users import User
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import Name, RequestBody
from peerd.web.problems import documented

router = APIRouter(prefix="/users", tags=["access"])
ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
Password = Annotated[
    str, Field(min_length=MIN_LENGTH, max_length=MAX_LENGTH, examples=["correct horse battery staple"])
]


class UserView(BaseModel):
    """A user."""

    name: str = Field(examples=["ann"])
    role: Role
    disabled: bool
    has_password: bool = Field(description="Without one, a trusted proxy names the user.")
    logged_in_at: datetime | None
    created_at: datetime

    @classmethod
    def of(cls, user: User) -> UserView:
        """The view of a user."""
        return cls(**{field: getattr(user, field) for field in cls.model_fields})


class UserBody(RequestBody):
    """A user to add."""

    name: str = Field(min_length=1, max_length=NAME_LIMIT, examples=["ann"])
    role: Role
    password: Password | None = None


class UserChange(RequestBody):
    """What of a user changes; its sessions end."""

    role: Role | None = None
    disabled: bool | None = None


class NewPassword(RequestBody):
    """A new password."""

    password: Password


@router.get("", responses=documented())
async def list_users(client: AioClientDependency) -> list[UserView]:
    """All users."""
    return [UserView.of(user) for user in await client.users.list()]


@router.post("", status_code=HTTPStatus.CREATED, responses=ERRORS)
async def add(body: UserBody, client: AioClientDependency) -> UserView:
    """Add a user; the first one is added where the database is, by `peerd users add`."""
    return UserView.of(await client.users.add(body.name, body.role, body.password))


@router.patch("/{user}", responses=ERRORS)
async def change(user: Name, body: UserChange, client: AioClientDependency) -> UserView:
    """Change the role of a user, or disable or enable it."""
    return UserView.of(await client.users.change(user, role=body.role, disabled=body.disabled))


@router.put("/{user}/password", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def set_password(user: Name, body: NewPassword, client: AioClientDependency) -> None:
    """Set the password of a user."""
    await client.users.set_password(user, body.password)


@router.delete("/{user}", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def remove(user: Name, client: AioClientDependency) -> None:
    """Remove a user."""
    await client.users.remove(user)
