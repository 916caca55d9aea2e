"""Every operation of the Python client, for clients with a server's URL instead of a database's.

``POST /operations/tasks.list`` is ``client.tasks.list``: the body has its arguments by name, the answer is its result.
The routes, their checks and their documents are made from the operations' signatures.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from peerd.operate.wire.operations import WireOperation, wire_operations
from peerd.web.arguments import ERRORS, JSON, components_of, decoded, json_body, schema_of
from peerd.web.dependencies import AioClientDependency

REFERENCE: Final = "#/components/schemas/operations.{name}"


def create_router() -> APIRouter:
    """A route for each operation."""
    router = APIRouter(prefix="/operations", tags=["operations"])
    for operation in wire_operations().values():
        arguments, result = (schema_of(kind, REFERENCE) for kind in (operation.arguments.type, operation.result_type))
        router.add_api_route(
            f"/{operation.name}",
            _endpoint(operation),
            methods=["POST"],
            summary=f"client.{operation.name}",
            description=operation.summary,
            operation_id=f"operations_{operation.name}",
            response_class=Response,
            responses=ERRORS | {200: {"description": "The result.", "content": {JSON: {"schema": result}}}},
            openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": arguments}}}},
        )
    return router


def operation_schemas() -> dict[str, Any]:
    """The components of the document to which the routes refer."""
    kinds = [kind for one in wire_operations().values() for kind in (one.arguments.type, one.result_type)]
    return {f"operations.{name}": schema for name, schema in components_of(kinds, REFERENCE).items()}


def _endpoint(operation: WireOperation) -> Callable[..., Awaitable[Response]]:
    find = attrgetter(operation.name)

    async def call(request: Request, client: AioClientDependency) -> Response:
        body = await json_body(request)
        args, kwargs = decoded(lambda: operation.decode_arguments(body))
        return Response(operation.encode_result(await find(client)(*args, **kwargs)), media_type=JSON)

    return call
