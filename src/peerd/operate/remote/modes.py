"""Modes of a client of a server: each operation is a request, and its answer the operation's result or error.

A reload and a scaling of a node are waited for by the client itself: the web process that carries a request may be the
one that the reload replaces, and it ends when its grace is over, perhaps before the reload. So the request to the node
is made by one short request to the server, and its answer is read by others, from the process that serves them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from peerd.domain.access import Actor
from peerd.domain.errors import DatabaseUnavailable, NodeRequestUnfinished
from peerd.domain.quoting import Masker
from peerd.operate import node_requests
from peerd.operate.actors import python_actor
from peerd.operate.guard import RefusalLimit
from peerd.operate.node_requests import FIRST_PAUSE, MAX_PAUSE, answer_of
from peerd.operate.nodes import NodeOperations, ReloadResult, ScaleResult
from peerd.operate.operations import AsyncMode, BlockingMode, Operation, OperationGroup, QuerySequence
from peerd.operate.remote.address import ServerAddress
from peerd.operate.remote.errors import (
    DatabaseRequired,
    RequestNotSent,
    ServerRefused,
    TokenRefused,
    UnexpectedAnswer,
)
from peerd.operate.remote.events import EventReader
from peerd.operate.remote.http import Answer, ServerConnection
from peerd.operate.tasks import TaskOperations
from peerd.operate.wire.errors import error_from_data
from peerd.operate.wire.operations import IDEMPOTENCY_KEY, WireOperation, readable_twice, wire_names, wire_operations
from peerd.runtime.concurrency import start_thread
from peerd.store.node_requests import NodeRequest

if TYPE_CHECKING:
    from peerd.storage.client import ContentTransfer

T = TypeVar("T")
JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
AWAY_WITHIN: Final = 30.0
"""Seconds for which the server may be away while the answer is waited for, as when its node restarts."""


class WaitedOperation(NamedTuple):
    """The parts of an operation that waits for a node: the operation that does not wait, and the type of the answer."""

    request: Any
    """An `Operation`, whose type would make it a method of this one."""
    answer: type[Any]


WAITED: Final[Mapping[Operation[..., Any], WaitedOperation]] = {
    NodeOperations.reload: WaitedOperation(NodeOperations.request_reload, ReloadResult),
    NodeOperations.scale: WaitedOperation(NodeOperations.request_scale, ScaleResult),
}


def wait_for_answer(
    request: NodeRequest, node: str, answer: type[Any], seconds: float, read: Callable[[int], NodeRequest]
) -> Any:
    """Read a request until it has ended, its node is gone, or the time is over; its answer.

    Raises:
        NodeUnreachable, NodeRequestFailed: as the operation.
        NodeRequestUnfinished: it has not ended in time, or the server is away for longer than `AWAY_WITHIN`.
    """
    deadline = time.monotonic() + seconds + node_requests.ANSWER_MARGIN
    pause, answered_at = FIRST_PAUSE, time.monotonic()
    while request.is_open and request.is_reachable and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 1.5, MAX_PAUSE)
        try:
            request, answered_at = read(request.id), time.monotonic()
        except DatabaseUnavailable as error:
            if time.monotonic() > answered_at + AWAY_WITHIN:
                raise NodeRequestUnfinished(node, request.command, request.id) from error
    return answer_of(request, node, answer)


class ServerProblem(msgspec.Struct):
    """An error as a server sends it."""

    code: str
    detail: str = ""
    data: Any = None


class ServerRequest(NamedTuple):
    """A call of an operation, ready to be sent."""

    operation: WireOperation
    body: bytes
    repeatable: bool
    waits: float
    """Seconds for which the server waits before it answers, at the most."""
    finish: Callable[[Any], Any] | None = None
    """Makes the result of the operation from the server's, by further requests."""


class ServerMode(BlockingMode):
    """Executes operations by requests, in the calling thread.

    Arguments are checked here first, as for the database. An operation that only reads, or has an idempotency key, is
    repeated when its answer is lost; a key is made for each call that has none.
    """

    threads = 32
    """Requests of one ``client.aio`` at the same time."""
    is_traced = False

    def __init__(self, address: ServerAddress) -> None:
        self.blocking = self
        self.address = address
        self.connection = ServerConnection(address)
        self.masker = Masker()
        self.refusals = RefusalLimit()
        self.set_actor(python_actor())  # what the token permits, the server checks
        self.find_task = TaskOperations[BlockingMode](self).find

    def acting_as(self, actor: Actor) -> BlockingMode:
        """Raise, since the server decides by the token."""
        raise DatabaseRequired("acting_as", self.address.shown)

    def prepare(
        self, operation: Operation[..., T], group: OperationGroup[Any], args: Any, kwargs: Any
    ) -> ServerRequest:
        """Check the arguments, and encode them."""
        wire = wire_operations()[wire_names()[operation]]
        args = [readable_twice(one) for one in args]
        kwargs = {argument: readable_twice(one) for argument, one in kwargs.items()}
        query = operation.query(group, *args, **kwargs)
        if operation in WAITED and isinstance(query, QuerySequence):
            seconds = round(query.waits - node_requests.ANSWER_MARGIN, 3)
            return self._prepare_waited(WAITED[operation], group, args, kwargs, seconds)
        if wire.takes_idempotency_key and kwargs.get(IDEMPOTENCY_KEY) is None:
            kwargs = kwargs | {IDEMPOTENCY_KEY: uuid.uuid4().hex}
        try:
            body = msgspec.json.encode(wire.arguments.bind(args, kwargs))
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestNotSent(wire.name, str(error) or type(error).__name__) from error
        repeatable = query.method == "read" or wire.takes_idempotency_key
        return ServerRequest(wire, body, repeatable, query.waits if isinstance(query, QuerySequence) else 0.0)

    def _prepare_waited(
        self, waited: WaitedOperation, group: OperationGroup[Any], args: Any, kwargs: Any, seconds: float
    ) -> ServerRequest:
        """Prepare an operation that waits for a node; see `prepare`."""
        node = str(kwargs["name"] if "name" in kwargs else args[0])

        def read(request_id: int) -> NodeRequest:
            return self.call(NodeOperations.get_request, group, (request_id,), {})

        def finish(request: NodeRequest) -> Any:
            return wait_for_answer(request, node, waited.answer, seconds, read)

        request = self.prepare(waited.request, group, args, kwargs | {"timeout": seconds})
        return request._replace(finish=finish)

    def perform(self, request: ServerRequest) -> Any:
        """Send a request, and return the operation's result or raise its error."""
        path = f"/operations/{request.operation.name}"
        answer = self.connection.post(path, request.body, repeatable=request.repeatable, waits=request.waits)
        if answer.status != HTTPStatus.OK:
            raise self.error_of(answer)
        if answer.content_type != JSON:
            raise UnexpectedAnswer(self.address.shown, f"it is {answer.content_type[:80]!r}, not JSON")
        try:
            result = request.operation.decode_result(answer.body, self.find_task)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            problem = f"the result of {request.operation.name} cannot be read: {error}"
            raise UnexpectedAnswer(self.address.shown, problem) from None
        return result if request.finish is None else request.finish(result)

    def error_of(self, answer: Answer) -> Exception:
        """The error that an answer stands for."""
        server, status = self.address.shown, answer.status
        if answer.content_type != PROBLEM:
            return UnexpectedAnswer(server, f"its status is {status}, and it is no problem of the API")
        try:
            problem = msgspec.json.decode(answer.body, type=ServerProblem)
        except (msgspec.MsgspecError, RecursionError) as error:
            return UnexpectedAnswer(server, f"its status is {status}, and its problem cannot be read: {error}")
        if problem.data is not None and (known := error_from_data(problem.code, problem.data)) is not None:
            return known
        kind = TokenRefused if status == HTTPStatus.UNAUTHORIZED else ServerRefused
        return kind(server, status, problem.code, problem.detail)

    @property
    def shown_url(self) -> str:
        """Where it connects to."""
        return self.address.shown

    def open_events(self, query: dict[str, Any]) -> EventReader:
        """A reader of events."""
        return EventReader(self.connection, query, self.error_of)

    def open_transfer(self) -> ContentTransfer:
        """What puts and gets contents of files by requests."""
        from peerd.operate.remote.files import ServerTransfer  # noqa: PLC0415 - with the extra `storage` only

        return ServerTransfer(self)

    def require_database(self, what: str) -> None:
        """Raise, since there is none."""
        raise DatabaseRequired(what, self.address.shown)

    def make_async(self) -> AsyncMode:
        """The mode of ``client.aio``."""
        return AsyncServerMode(self)

    def close(self) -> None:
        """Close all connections."""
        self.connection.close()


class AsyncServerMode(AsyncMode):
    """Executes operations by requests on a few threads: in any event loop, with the connections of the client."""

    async def execute(self, prepared: ServerRequest) -> Any:
        """Execute a call that was prepared; one that waits for a node has a thread of its own, perhaps for long."""
        if prepared.waits or prepared.finish is not None:
            return await start_thread(self.blocking.perform, prepared, name="waits for a node")
        return await super().execute(prepared)

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread."""
        return await self._threads.call(function)
