"""Every operation of the Python client, for clients with a server's URL instead of a database's.

``POST /operations/tasks.list`` is ``client.tasks.list``: the body has its arguments by name, the answer is its result.
The routes, their checks and their documents are made from the operations' signatures.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from operator import attrgetter
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response

from peerd.domain.errors import InvalidFilter, PeerdError
from peerd.operate.wire.operations import WireOperation, wire_operations
from peerd.web.dependencies import AioClientDependency
from peerd.web.problems import documented, problem_response

JSON: Final = "application/json"
REFERENCE: Final = "#/components/schemas/operations.{name}"
BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
ERRORS: Final = documented(
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
NO_TIME: Final = "RFC3339"
"""In the error of a text that looks like a time, such as one with a leap second."""
_PLACE: Final = re.compile(r" - at `\$\.?(.*)`$")
_FIELD: Final = re.compile(r"field `(.*)`$")


class RequestProblem(Exception):
    """A body that is no request of the operation."""

    def __init__(self, detail: str, field: str | None = None) -> None:
        self.detail = detail
        self.field = field
        super().__init__(detail)


def create_router() -> APIRouter:
    """A route for each operation."""
    router = APIRouter(prefix="/operations", tags=["operations"])
    for operation in wire_operations().values():
        router.add_api_route(
            f"/{operation.name}",
            _endpoint(operation),
            methods=["POST"],
            summary=f"client.{operation.name}",
            description=operation.summary,
            operation_id=f"operations_{operation.name}",
            response_class=Response,
            responses=ERRORS | {200: {"description": "The result.", "content": {JSON: {"schema": _result(operation)}}}},
            openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": _arguments(operation)}}}},
        )
    return router


def operation_schemas() -> dict[str, Any]:
    """The components of the document to which the routes refer."""
    operations = wire_operations().values()
    types = [kind for one in operations for kind in (one.arguments.type, one.result_type)]
    _, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    return {f"operations.{name}": _as_openapi(schema) for name, schema in components.items()}


def _endpoint(operation: WireOperation) -> Callable[..., Awaitable[Response]]:
    find = attrgetter(operation.name)

    async def call(request: Request, client: AioClientDependency) -> Response:
        try:
            args, kwargs = _decode(operation, await _read(request))
        except RequestProblem as problem:
            return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, "InvalidRequest", problem.detail, problem.field)
        result = await find(client)(*args, **kwargs)
        return Response(operation.encode_result(result), media_type=JSON)

    return call


async def _read(request: Request) -> bytes:
    """The body, whose type a form of another site cannot have."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise RequestProblem(f"the content-type is {JSON}", "content-type")
    return await request.body()


def _decode(operation: WireOperation, body: bytes) -> tuple[list[Any], dict[str, Any]]:
    try:
        return operation.decode_arguments(body)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, PeerdError):  # a value that words its own problem
            raise error.__cause__ from None
        text = str(error)
        found = _PLACE.search(text) or _FIELD.search(text)
        field = found[1] if found else None
        if NO_TIME in text:
            raise InvalidFilter(str(field), "is no time of the calendar, such as 2026-11-21T09:30:00Z") from None
        raise RequestProblem(_PLACE.sub("", text), field) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise RequestProblem(f"the body is no JSON: {error}") from None


def _arguments(operation: WireOperation) -> dict[str, Any]:
    return _schema(operation.arguments.type)


def _result(operation: WireOperation) -> dict[str, Any]:
    return _schema(operation.result_type)


def _schema(kind: Any) -> dict[str, Any]:
    [schema], _ = msgspec.json.schema_components([kind], ref_template=REFERENCE)
    found: dict[str, Any] = _as_openapi(schema)
    return found


def _as_openapi(schema: Any) -> Any:
    """A schema whose bytes have the pattern that the decoder holds them to."""
    if isinstance(schema, list):
        return [_as_openapi(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _as_openapi(value) for key, value in schema.items()}
    return made | {"pattern": BASE64} if made.get("contentEncoding") == "base64" else made
