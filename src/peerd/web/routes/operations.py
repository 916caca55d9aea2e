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
from peerd.web.arguments import API, ERRORS, JSON, components_of, decoded, json_body, json_content
from peerd.web.dependencies import AioClientDependency

REFERENCE: Final = "#/components/schemas/operations.{name}"


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
        )
    return router


def describe_routes(document: dict[str, Any]) -> None:
    """Complete the OpenAPI document of an app."""
    for operation in wire_operations().values():
        arguments, result = operation.arguments.type, operation.result_type
        described = document["paths"][f"{API}/operations/{operation.name}"]["post"]
        described["requestBody"] = {"required": True, "content": json_content(arguments, REFERENCE)}
        answer = {"description": "The result.", "content": json_content(result, REFERENCE)}
        described["responses"] |= ERRORS | {"200": answer}
        found = components_of((arguments, result), REFERENCE)
        document["components"]["schemas"] |= {f"operations.{name}": schema for name, schema in found.items()}


def _endpoint(operation: WireOperation) -> Callable[..., Awaitable[Response]]:
    find = attrgetter(operation.name)

    async def call(request: Request, client: AioClientDependency) -> Response:
        body = await json_body(request)
        args, kwargs = decoded(operation.arguments.type, lambda: operation.decode_arguments(body))
        return Response(operation.encode_result(await find(client)(*args, **kwargs)), media_type=JSON)

    return call
