"""Arguments of operations in requests: how they are decoded, which mistakes are told, and what a document says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from fastapi import Request
from starlette.exceptions import HTTPException

from peerd.domain.errors import InvalidFilter, PeerdError
from peerd.web.problems import InvalidRequest, documented

T = TypeVar("T")
API: Final = "/api/v1"
JSON: Final = "application/json"
BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
STATUSES: Final = (
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.GATEWAY_TIMEOUT,
)
ERRORS: Final = {str(status): problem for status, problem in documented(*STATUSES).items()}
NO_TIME: Final = "RFC3339"
"""In the error of a text that looks like a time, such as one with a leap second."""
_PLACE: Final = re.compile(r" - at `\$\.?(.*)`$")
_FIELD: Final = re.compile(r"field `(.*)`$")


async def json_body(request: Request) -> bytes:
    """The body, whose type a form of another site cannot have; raises `InvalidRequest`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise InvalidRequest(f"the content-type is {JSON}", "content-type")
    return await request.body()


def decoded(kind: type[msgspec.Struct], decode: Callable[[], T]) -> T:
    """What `decode` makes of a kind; raises `InvalidRequest`, the problem that a value words itself, or status 400."""
    try:
        return decode()
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, PeerdError):
            raise error.__cause__ from None
        text = str(error)
        found = _PLACE.search(text) or _FIELD.search(text)
        field = found[1] if found else None
        if NO_TIME in text:
            raise InvalidFilter(str(field), "is no time of the calendar, such as 2026-11-21T09:30:00Z") from None
        problem = _PLACE.sub("", text)
        is_unknown = "unknown field" in text and not _PLACE.search(text)
        names = ", ".join(kind.__struct_encode_fields__) or "none"
        raise InvalidRequest(f"{problem}: there are {names}" if is_unknown else problem, field) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}") from None


def json_content(kind: Any, reference: str) -> dict[str, Any]:
    """What a document says of JSON of a type, with references to its components."""
    [schema], _ = msgspec.json.schema_components([kind], ref_template=reference)
    return {JSON: {"schema": _as_openapi(schema)}}


def components_of(kinds: Iterable[Any], reference: str) -> dict[str, Any]:
    """The components to which the schemas of types refer."""
    _, components = msgspec.json.schema_components(kinds, ref_template=reference)
    return {name: _as_openapi(schema) for name, schema in components.items()}


def _as_openapi(schema: Any) -> Any:
    """A schema whose bytes have the pattern that the decoder holds them to."""
    if isinstance(schema, list):
        return [_as_openapi(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _as_openapi(value) for key, value in schema.items()}
    return made | {"pattern": BASE64} if made.get("contentEncoding") == "base64" else made
