"""Types of parameters and of fields of requests, as the documentation describes them and the server checks them."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Header, Path
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from peerd.domain.task import NAME_LIMIT, QUEUE_NAME
from peerd.operate.validation import MAX_IDEMPOTENCY_KEY

MAX_ID: Final = 2**63 - 1
_PARTS: Final = "".join(rf"(\d+(\.\d+)? *{unit} *)?" for unit in ("w", "d", "h", "m", "s", "ms"))
_DURATION: Final = rf"^(\d+(\.\d+)?|{_PARTS})$"
_TEN_YEARS: Final = 315_360_000


def _whole(value: object) -> object:
    """1.0 is a whole number in JSON; true and "1" are none."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE: Final = BeforeValidator(_whole)
"""Goes with a strict integer."""
QueueName = Annotated[str, Path(pattern=f"^{QUEUE_NAME.pattern}$", max_length=NAME_LIMIT, examples=["video"])]
Name = Annotated[str, Path(min_length=1, max_length=NAME_LIMIT)]
TaskId = Annotated[int, Path(ge=1, le=MAX_ID, examples=[17])]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=MAX_IDEMPOTENCY_KEY,
        pattern="^[!-~]+$",
        description="For a day, a repetition of the request with this key enqueues nothing again.",
        examples=["0b6f7c1e-5f0e-4f7e-9b0b-7f3b7f1b2c3d"],
    ),
]
Duration = Annotated[
    Annotated[float, Field(strict=True, ge=0, lt=_TEN_YEARS, allow_inf_nan=False)]
    | Annotated[str, Field(min_length=1, max_length=40, pattern=_DURATION)],
    Field(description="Seconds, or text such as 1h30m.", examples=["1h30m"]),
]

_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
Base64 = Annotated[str, Field(pattern=_BASE64, description="Bytes in base64.", examples=["/wA="])]


class RequestBody(BaseModel):
    """The root of bodies of requests: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid")
