"""Whether the process responds, and whether it can serve."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from peerd.web.dependencies import ProgramClientDependency
from peerd.web.problems import documented

router = APIRouter(prefix="/health", tags=["health"])


class Health(BaseModel):
    """An answer to a health check."""

    status: Literal["ok"] = "ok"


@router.get("/live", responses=documented())
async def live() -> Health:
    """The process responds."""
    return Health()


@router.get("/ready", responses=documented())
async def ready(client: ProgramClientDependency) -> Health:
    """The process responds, and so does the database; 503 if it does not."""
    await client.now()
    return Health()
