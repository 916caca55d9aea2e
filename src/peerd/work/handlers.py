"""Declarations of queues and handlers. A declaration registers nothing globally, and connects to nothing."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

import msgspec

from peerd.domain.errors import InvalidArguments
from peerd.domain.outcome import Outcome
from peerd.domain.pacing import exponential_backoff
from peerd.domain.task import Call, NewTask
from peerd.domain.units import parse_duration
from peerd.work.arguments import HandlerArguments, LimitKey, LimitKeyFunction
from peerd.work.context import Context

P = ParamSpec("P")
R = TypeVar("R")
Backoff = Callable[[int], float] | Literal["exponential"] | None
BeforeHook = Callable[[Context], Awaitable[None] | None]
AfterHook = Callable[[Context, Outcome], Awaitable[None] | None]
Before = TypeVar("Before", bound=BeforeHook)
After = TypeVar("After", bound=AfterHook)
HandlerKind = Literal["coroutine", "thread", "process"]
_CELERY = "apply apply_async chunks delay delay_on_commit map s si signature starmap"
_DRAMATIQ = "message message_with_options send send_with_options"
_OTHERS = "aenqueue configure defer defer_async enqueue enqueue_at enqueue_in kiq perform_async schedule using"
FOREIGN_HANDLER_METHODS: Final = frozenset(f"{_CELERY} {_DRAMATIQ} {_OTHERS}".split())
"""Methods that enqueue in Celery, Dramatiq and others (RQ, Huey, Procrastinate, Taskiq, Django Tasks)."""
FOREIGN_QUEUE_METHODS: Final = frozenset(
    f"add enqueue_call enqueue_many push put send_task {_DRAMATIQ} {_OTHERS}".split()
)


class HandlerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The time limit and the retries of a handler; see `Queue.task`."""

    timeout: float | None = None
    max_attempts: int | None = None
    retry_on: tuple[type[Exception], ...] = ()
    discard_on: tuple[type[Exception], ...] = ()
    backoff: Backoff = None


class Handler(Generic[P, R]):
    """User code for the tasks of one name in one queue; made by `Queue.task`. Calling it calls the plain function."""

    def __init__(
        self,
        queue: Queue,
        function: Callable[P, R],
        *,
        name: str,
        policy: HandlerPolicy,
        process: bool,
        limit_key: LimitKey | None = None,
    ) -> None:
        self.queue = queue
        self.function = function
        self.name = name
        self.policy = policy
        self.arguments = HandlerArguments(function, name)
        self.limit_key_function = None if limit_key is None else LimitKeyFunction(limit_key, self.arguments)
        self.kind = _kind_of(function, process=process, name=name)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__module__ = function.__module__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<handler {self.name} of queue {self.queue.name}>"

    def with_args(self, /, *args: Any, **kwargs: Any) -> Call:
        """A call that can be enqueued. ``ctx`` is left out: the worker gives it.

        Raises:
            InvalidArguments: they do not fit the signature and its annotations, or give no limit_key.
        """
        body = self.arguments.body(*args, **kwargs)
        key = None if self.limit_key_function is None else self.limit_key_function(body)
        return Call(self.queue.name, self.name, body, handler=self, limit_key=key)

    def retries(self, error: Exception) -> bool:
        """Whether another attempt may follow this exception."""
        policy = self.policy
        return not isinstance(error, policy.discard_on) and (not policy.retry_on or isinstance(error, policy.retry_on))

    def retry_delay(self, attempts: int) -> float | None:
        """Seconds until the next attempt after this many failed ones; None where the handler has no backoff."""
        match self.policy.backoff:
            case None:
                return None
            case "exponential":
                return exponential_backoff(attempts, random=random.random)
            case function:
                return float(function(attempts))

    if not TYPE_CHECKING:  # a type checker reports such a name as missing

        def __getattr__(self, name: str) -> Any:
            handler = self.__dict__.get("__name__")
            raise AttributeError(_missing_attribute_message(self, name, FOREIGN_HANDLER_METHODS, handler))


class HandlerDecorator(Protocol):
    """The result of ``@queue.task(…)``, which takes the function."""

    def __call__(self, function: Callable[P, R], /) -> Handler[P, R]: ...


class Queue:
    """A queue and the handlers of its tasks.

    Args:
        name: 1–200 of ``A-Z a-z 0-9 - + / ; . $ _ ( ) : @``.

    Raises:
        InvalidTask: no queue can have this name.

    >>> video = Queue("video")
    >>> @video.task(timeout="2h")
    ... async def transcode(ctx, source: str, height: int = 720) -> dict: ...
    >>> transcode.with_args("a.mp4", height=1080)
    Call(queue='video', name='transcode', body='{"source":"a.mp4","height":1080}')
    """

    def __init__(self, name: str) -> None:
        NewTask(queue=name)
        self.name = name
        self.handlers: dict[str, Handler[Any, Any]] = {}
        self.before: list[BeforeHook] = []
        self.after: list[AfterHook] = []

    def __repr__(self) -> str:
        return f"<queue {self.name}: {', '.join(sorted(self.handlers)) or 'no handlers'}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(_missing_attribute_message(self, name, FOREIGN_QUEUE_METHODS, "HANDLER"))

    @overload
    def task(self, function: Callable[P, R], /) -> Handler[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        timeout: str | float | None = None,
        max_attempts: int | None = None,
        retry_on: tuple[type[Exception], ...] = (),
        discard_on: tuple[type[Exception], ...] = (),
        backoff: Backoff = None,
        process: bool = False,
        limit_key: LimitKey | None = None,
    ) -> HandlerDecorator: ...

    def task(  # noqa: PLR0913 - each is a word of a declaration
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        timeout: str | float | None = None,
        max_attempts: int | None = None,
        retry_on: tuple[type[Exception], ...] = (),
        discard_on: tuple[type[Exception], ...] = (),
        backoff: Backoff = None,
        process: bool = False,
        limit_key: LimitKey | None = None,
    ) -> Any:
        """Declare a function as the handler of the tasks of its name.

        Args:
            function: a coroutine function; a plain one runs in a thread.
            name: of the handler; the function's name by default.
            timeout: of an attempt, seconds or "2h"; None is the worker's.
            max_attempts: None is the worker's.
            retry_on: exceptions that are retried; if given, all others make the task dead.
            discard_on: exceptions that make the task dead at once.
            backoff: seconds by failed attempts, or "exponential"; None is the worker's delay.
            process: run a plain function in a process of its own, which a cancel or time-out kills.
            limit_key: the key by which limits count its tasks: the name of an argument that is text or a number; or a
                function, which is called with the arguments by their names. None, or a result of None: no key.

        Raises:
            InvalidArguments: the signature cannot be served from a JSON object, the name is taken, or limit_key
                names no argument.
        """
        policy = HandlerPolicy(
            timeout=None if timeout is None else parse_duration(timeout),
            max_attempts=max_attempts,
            retry_on=tuple(retry_on),
            discard_on=tuple(discard_on),
            backoff=backoff,
        )

        def declare(function: Callable[..., Any]) -> Handler[..., Any]:
            own_name = name or function.__name__
            handler = Handler(self, function, name=own_name, policy=policy, process=process, limit_key=limit_key)
            NewTask(queue=self.name, name=handler.name, max_attempts=max_attempts, timeout=policy.timeout)
            if handler.name in self.handlers:
                raise InvalidArguments(handler.name, f"queue {self.name} has a handler of this name already")
            self.handlers[handler.name] = handler
            return handler

        return declare if function is None else declare(function)

    def before_attempt(self, hook: Before) -> Before:
        """Decorator: call this with the Context before each attempt, its arguments checked; an error fails it."""
        self.before.append(hook)
        return hook

    def after_attempt(self, hook: After) -> After:
        """Decorator: call this with the Context and the outcome after each attempt; an error is only logged."""
        self.after.append(hook)
        return hook


def _missing_attribute_message(owner: object, name: str, foreign: frozenset[str], handler: str | None) -> str:
    """The error of a missing attribute; for methods that enqueue in other libraries, with the remedy."""
    kind = type(owner).__name__
    if name not in foreign:
        return f"{kind!r} object has no attribute {name!r}"
    remedy = f"client.enqueue({handler}.with_args(…)), or await ctx.enqueue({handler}.with_args(…)) in a handler"
    return f"a {kind} of peerd has no {name}(), because it has no database; to enqueue a task, call {remedy}"


def _kind_of(function: Callable[..., Any], *, process: bool, name: str) -> HandlerKind:
    is_coroutine = inspect.iscoroutinefunction(function)
    if not process:
        return "coroutine" if is_coroutine else "thread"
    if is_coroutine:
        raise InvalidArguments(name, "process=True is for plain functions; a coroutine runs in the worker")
    if "." in function.__qualname__:
        raise InvalidArguments(name, "process=True needs a function at the top of a module: it is imported by name")
    return "process"
