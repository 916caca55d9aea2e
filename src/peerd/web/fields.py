"""Types of parameters and of fields of requests, as the documentation describes them and the server checks them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from peerd.domain.task import NAME_LIMIT, QUEUE_NAME

MAX_ID: Final = 2**63 - 1
TaskId = Annotated[int, Path(ge=1, le=MAX_ID, examples=[17])]
Queue = Annotated[str, Field(pattern=f"^{QUEUE_NAME.pattern}$", max_length=NAME_LIMIT, examples=["video"])]

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
