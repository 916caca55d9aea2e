"""Tokens of the API, for programs."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field

from peerd.domain.access import MAX_SCOPES, Right
from peerd.domain.task import NAME_LIMIT, QUEUE_NAME
from peerd.operate.tokens import MOST_QUEUES
from peerd.store.tokens import ApiToken
from peerd.web.dependencies import AioClientDependency
from peerd.web.fields import MAX_ID, Duration, RequestBody
from peerd.web.problems import documented

router = APIRouter(prefix="/tokens", tags=["access"])
ERRORS = documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
TokenId = Annotated[int, Path(ge=1, le=MAX_ID, examples=[3])]
TokenQueue = Annotated[str, Field(pattern=f"^{QUEUE_NAME.pattern}$", max_length=NAME_LIMIT, examples=["video"])]


class TokenView(BaseModel):
    """A token, without its secret."""

    id: str = Field(examples=["3"])
    name: str = Field(examples=["encoder"])
    prefix: str = Field(description="A token begins with `peerd_` and this.", examples=["0123456789ab"])
    rights: list[Right]
    queues: list[str] | None = Field(description="The queues that it is restricted to; null: it is not.")
    file_scopes: list[str] | None = Field(description="The files that it is restricted to; null: it is not.")
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="Written once a minute at the most.")
    created_at: datetime

    @classmethod
    def of(cls, token: ApiToken, **more: Any) -> Self:
        """The view of a token."""
        row: dict[str, Any] = {field: getattr(token, field) for field in ApiToken.__struct_fields__}
        row |= {"id": str(token.id), "rights": sorted(token.rights)}
        row["queues"] = None if token.queues is None else sorted(token.queues)
        return cls(**row | more)


class CreatedToken(TokenView):
    """A token that was created."""

    secret: str = Field(description="What a program sends. It is shown this once.", examples=["peerd_…"])


class TokenBody(RequestBody):
    """A token to create."""

    name: str = Field(min_length=1, max_length=NAME_LIMIT, examples=["encoder"])
    rights: list[Right] = Field(min_length=1, max_length=len(Right), examples=[["view", "enqueue"]])
    queues: list[TokenQueue] | None = Field(
        None, min_length=1, max_length=MOST_QUEUES, description="Restrict it to these queues."
    )
    file_scopes: list[str] | None = Field(
        None,
        min_length=1,
        max_length=MAX_SCOPES,
        description="Restrict its rights on files to these: BUCKET or BUCKET/PREFIX.",
        examples=[["films/2026/", "team-*"]],
    )
    expires_in: Duration | None = Field(None, description="None: never.", examples=["90d"])


@router.get("", responses=documented())
async def list_tokens(client: AioClientDependency) -> list[TokenView]:
    """All tokens, the newest first."""
    return [TokenView.of(token) for token in await client.tokens.list()]


@router.post("", status_code=HTTPStatus.CREATED, responses=ERRORS)
async def create(body: TokenBody, client: AioClientDependency) -> CreatedToken:
    """Create a token."""
    made = await client.tokens.create(
        body.name, body.rights, queues=body.queues, file_scopes=body.file_scopes, expires_in=body.expires_in
    )
    return CreatedToken.of(made.token, secret=made.secret)


@router.delete("/{token_id}", status_code=HTTPStatus.NO_CONTENT, responses=ERRORS, response_class=Response)
async def revoke(token_id: TokenId, client: AioClientDependency) -> None:
    """Revoke a token at once."""
    await client.tokens.revoke(token_id)
