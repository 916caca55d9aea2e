"""The routes of REST: operations at the addresses that are declared with them (`peerd.operate.rest`).

The arguments of an operation are in the path, the query and the body, and the answer is a view of its result
(`peerd.web.views`). A few routes combine operations; they are functions of the client in `peerd.web.routes.combined`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import cache, cached_property
from http import HTTPStatus
from operator import attrgetter
from types import UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.datastructures import QueryParams

from peerd.domain.bulk import BulkPreview
from peerd.operate.client import AioClient
from peerd.operate.rest import Rest
from peerd.operate.wire.operations import IDEMPOTENCY_KEY, WireOperation, wire_operations
from peerd.operate.wire.signatures import ArgumentStruct, WireFields, fields_struct
from peerd.store.enqueue import Enqueued
from peerd.web.arguments import API, ERRORS, JSON, components_of, decoded, json_body, json_content
from peerd.web.dependencies import AioClientDependency
from peerd.web.routes.combined import COMBINED, task_in_full
from peerd.web.views import TaskInFull, shows_nodes, view, view_type

REFERENCE: Final = "#/components/schemas/{name}"
ACCESS: Final = ("users", "tokens", "audit")
KEY_HEADER: Final = "idempotency-key"
KEY_PARAMETER: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    "description": "For a day, a repetition of the request with this key enqueues nothing again.",
}


class Count(msgspec.Struct):
    """How many there were."""

    count: int


class RequestParts(NamedTuple):
    """The arguments in the parts of a request."""

    path: type[WireFields]
    query: type[WireFields]
    body: type[WireFields]


class RestRoute:
    """An operation at its address.

    Args:
        rest: the address.
        find: the operation of a client.
        arguments: of the operation.
        result_type: of the operation.
        summary: for the document.
        name: of the operation.
    """

    def __init__(
        self,
        rest: Rest,
        find: Callable[[AioClient], Callable[..., Awaitable[Any]]],
        arguments: ArgumentStruct,
        result_type: Any,
        summary: str,
        name: str,
    ) -> None:
        self.rest = rest
        self._own_name = name
        self.summary = summary
        self._find = find
        self._arguments = arguments
        shown = {"task": TaskInFull, "count": Count}.get(rest.answer, result_type)
        self._results = get_args(shown) if get_origin(shown) is UnionType else (shown,)

    @classmethod
    def of_operation(cls, operation: WireOperation, rest: Rest) -> RestRoute:
        """The route of an operation of the client."""
        own = operation.arguments, operation.result_type, operation.summary, operation.name.rpartition(".")[2]
        return cls(rest, attrgetter(operation.name), *own)

    @classmethod
    def of_function(cls, rest: Rest, function: Callable[..., Awaitable[Any]]) -> RestRoute:
        """The route of a function of a client and further arguments."""
        name = "".join(word.capitalize() for word in function.__name__.split("_"))
        return cls(
            rest,
            lambda client: lambda *args, **kwargs: function(client, *args, **kwargs),
            ArgumentStruct(f"{name}Arguments", function),
            get_type_hints(function)["return"],
            str(function.__doc__),
            function.__name__,
        )

    @cached_property
    def _parts(self) -> RequestParts:
        rest, fields = self.rest, self._arguments.fields
        given = [one for one in fields if one[0] not in (*rest.fixed, IDEMPOTENCY_KEY)]
        in_path, others = given[: len(rest.path_names)], given[len(rest.path_names) :]
        in_query = [one for one in others if not rest.has_body or one[0] in rest.query]
        in_body = [one for one in others if one not in in_query]
        names = {one[0]: path_name for one, path_name in zip(in_path, rest.path_names, strict=True)}
        struct = self._arguments.type.__name__.removesuffix("Arguments")
        return RequestParts(
            fields_struct(f"{struct}Path", in_path, names),
            fields_struct(f"{struct}Query", in_query, rest.renamed),
            fields_struct(f"{struct}Body", in_body, rest.renamed),
        )

    async def call(self, request: Request, client: AioClientDependency) -> Response:
        """Call the operation with what the request has, and answer."""
        args, kwargs = await self._read(request)
        result = await self._find(client)(*args, **kwargs)
        match self.rest.answer:
            case "nothing":
                return Response(status_code=HTTPStatus.NO_CONTENT)
            case "task":
                result = await task_in_full(client, kwargs["task_id"])
            case "count":
                result = Count(result)
        nodes = {node.id: node for node in await client.nodes.list()} if self._shows_nodes else {}
        has_done_nothing = isinstance(result, BulkPreview) or (isinstance(result, Enqueued) and not result.created)
        status = HTTPStatus.OK if has_done_nothing else self.rest.status
        return Response(msgspec.json.encode(view(result, nodes)), status, media_type=JSON)

    async def _read(self, request: Request) -> tuple[list[Any], dict[str, Any]]:
        path, query = self._parts.path, self._parts.query
        parts = [
            decoded(path, lambda: msgspec.convert(request.path_params, path, strict=False)),
            decoded(query, lambda: msgspec.convert(self._query_of(request.query_params), query, strict=False)),
        ]
        if self.rest.has_body:
            body = await self._body_of(request)
            parts.append(decoded(self._parts.body, lambda: msgspec.json.decode(body, type=self._parts.body)))
        given = {name: getattr(part, name) for part in parts for name in part.__struct_fields__}
        if KEY_HEADER in request.headers and self._takes_key:
            given[IDEMPOTENCY_KEY] = request.headers[KEY_HEADER]
        return self._arguments.unbind(self._arguments.type(**given, **self.rest.fixed))

    async def _body_of(self, request: Request) -> bytes:
        has_none = "content-type" not in request.headers and not await request.body()
        return b"{}" if has_none else await json_body(request)

    def _query_of(self, given: QueryParams) -> dict[str, Any]:
        return {name: given.getlist(name) if name in self._repeated else given[name] for name in given}

    @cached_property
    def _shows_nodes(self) -> bool:
        return any(map(shows_nodes, self._results))

    @property
    def _takes_key(self) -> bool:
        return IDEMPOTENCY_KEY in self._arguments.names()

    @cached_property
    def _repeated(self) -> Collection[str]:
        """The names of parameters that may be given several times."""
        return {one["name"] for one in _parameters(self._parts.query, "query") if "array" in str(one["schema"])}

    def _answers(self) -> dict[HTTPStatus, Any]:
        """The types of the answers' JSON by their statuses; a request that changed nothing has 200."""
        if self.rest.answer == "nothing":
            return {}
        shown = [view_type(one) for one in self._results]
        can_change_nothing = len(shown) > 1 or self._results == (Enqueued,)
        return {self.rest.status: shown[0]} | ({HTTPStatus.OK: shown[-1]} if can_change_nothing else {})

    @property
    def subject(self) -> str:
        """The first part of the path."""
        return self.rest.path.split("/")[1]

    def add_to(self, router: APIRouter) -> None:
        """Add the route to those of its subject."""
        rest = self.rest
        router.add_api_route(
            rest.path.removeprefix(router.prefix),
            self.call,
            methods=[rest.verb],
            name=rest.name or self._own_name,
            tags=["access" if self.subject in ACCESS else self.subject],
            summary=self.summary,
            response_class=Response,
            status_code=rest.status,
        )

    def describe(self, document: dict[str, Any]) -> None:
        """Complete the OpenAPI document of an app."""
        path, query, body = self._parts
        answers = self._answers()
        described = document["paths"][f"{API}{self.rest.path.replace(':path', '')}"][self.rest.verb.lower()]
        described["parameters"] = [*_parameters(path, "path"), *_parameters(query, "query")]
        described["parameters"] += [KEY_PARAMETER] if self._takes_key else []
        if body.__struct_fields__:
            is_required = any(one.required for one in msgspec.structs.fields(body))
            described["requestBody"] = {"required": is_required, "content": json_content(body, REFERENCE)}
        described["responses"] |= ERRORS | {
            str(status.value): {"description": status.phrase, "content": json_content(kind, REFERENCE)}
            for status, kind in answers.items()
        }
        document["components"]["schemas"] |= components_of((body, *answers.values()), REFERENCE)


@cache
def rest_routes() -> Sequence[RestRoute]:
    """All routes; those whose paths have fewer names come first, since a path matches the first route that it can."""
    found = [(one, one.operation.rest) for one in wire_operations().values()]
    routes = [RestRoute.of_operation(one, rest) for one, rest in found if rest is not None]
    routes += [RestRoute.of_function(rest, function) for rest, function in COMBINED]
    return sorted(routes, key=lambda route: len(route.rest.path_names))


def create_routers() -> Iterable[APIRouter]:
    """The routes of each subject: a request is compared with those of its own."""
    routers = {route.subject: APIRouter(prefix=f"/{route.subject}") for route in rest_routes()}
    for route in rest_routes():
        route.add_to(routers[route.subject])
    return routers.values()


def describe_routes(document: dict[str, Any]) -> None:
    """Complete the OpenAPI document of an app."""
    for route in rest_routes():
        route.describe(document)


def _parameters(fields: type[WireFields], place: str) -> list[dict[str, Any]]:
    """The parameters of the path or the query in a document."""
    [schema] = msgspec.json.schema_components([fields], ref_template=REFERENCE)[1].values()
    required = schema.get("required", ())
    return [
        {"name": name, "in": place, "required": name in required, "schema": one}
        for name, one in schema["properties"].items()
    ]
