"""Types of parameters and of fields of requests, as the documentation describes them and the server checks them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from fastapi import Header, Path
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

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


MOST_MISTAKES: Final = 20
"""Mistakes that are told of a request; each takes time, on the event loop, and no reader wants more."""


class RequestBody(BaseModel):
    """The root of bodies of requests: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _few_mistakes(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Tell so many mistakes alone, before pydantic makes an object of each."""
        context = {"most": MOST_MISTAKES, "known": ", ".join(cls.model_fields)}
        problem = PydanticCustomError("too_many_mistakes", "more than {most} mistakes: it has {known}", context)
        if isinstance(given, dict) and len(given) > len(cls.model_fields) + MOST_MISTAKES:
            raise problem
        try:
            return validate(given)
        except ValidationError as error:
            if error.error_count() > MOST_MISTAKES:
                raise problem from None
            raise
