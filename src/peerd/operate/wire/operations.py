"""All operations of a client by their names, such as ``tasks.list``, each with its arguments and its result in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from peerd.operate.actors import python_actor
from peerd.operate.client import ClientOperations
from peerd.operate.job import FindTask, Job
from peerd.operate.operations import BlockingMode, Operation, OperationGroup
from peerd.operate.wire.signatures import ArgumentStruct
from peerd.store.enqueue import Enqueued

IDEMPOTENCY_KEY = "idempotency_key"
"""The parameter that makes a repetition harmless."""


class WireOperation:
    """An operation in JSON: its arguments are one object, and its result is any value.

    Args:
        name: what follows ``client.``, such as ``tasks.list``.
        operation: the operation.
    """

    def __init__(self, name: str, operation: Operation[Any, Any]) -> None:
        self.name = name
        self.operation = operation
        self._method = operation.__wrapped__

    @property
    def summary(self) -> str:
        """The first paragraph of its docstring."""
        return " ".join((self._method.__doc__ or self.name).strip().split("\n\n")[0].split())

    @property
    def takes_idempotency_key(self) -> bool:
        """Whether it has such a parameter."""
        return IDEMPOTENCY_KEY in self.arguments.names()

    @cached_property
    def arguments(self) -> ArgumentStruct:
        """The arguments of the operation."""
        words = self.name.replace("_", ".").split(".")
        return ArgumentStruct("".join(word.capitalize() for word in words) + "Arguments", self._method)

    @cached_property
    def result_type(self) -> Any:
        """The type of its result in JSON."""
        [result] = get_args(get_type_hints(self._method)["return"])
        return _with_references(result)

    @cached_property
    def _arguments_decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.arguments.type)

    @cached_property
    def _result_decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.result_type)

    def decode_arguments(self, body: bytes) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the named arguments; raises msgspec.MsgspecError, or RecursionError."""
        return self.arguments.unbind(self._arguments_decoder.decode(body))

    def encode_result(self, value: Any) -> bytes:
        """The result in JSON."""
        return msgspec.json.encode(value, enc_hook=_to_reference)

    def decode_result(self, body: bytes, find_task: FindTask) -> Any:
        """The result; raises msgspec.MsgspecError, or RecursionError."""
        return _to_jobs(self._result_decoder.decode(body), find_task)


@cache
def wire_operations() -> Mapping[str, WireOperation]:
    """All operations, by name."""
    return {name: WireOperation(name, found) for name, found in _find_operations()}


@cache
def wire_names() -> Mapping[Operation[Any, Any], str]:
    """The names of all operations."""
    return {found.operation: name for name, found in wire_operations().items()}


def _find_operations() -> Iterator[tuple[str, Operation[Any, Any]]]:
    client = ClientOperations(UnboundMode())
    yield from _operations_of(client, "")


def _operations_of(group: OperationGroup[Any], prefix: str) -> Iterator[tuple[str, Operation[Any, Any]]]:
    """The operations of a group, and of the groups that it has."""
    kind = type(group)
    for name in dir(kind):
        if not name.startswith("_") and isinstance(found := getattr(kind, name), Operation):
            yield f"{prefix}{name}", found
    for name, inner in vars(group).items():
        if isinstance(inner, OperationGroup):
            yield from _operations_of(inner, f"{prefix}{name}.")


class UnboundMode(BlockingMode):
    """The mode of a client whose operations are looked at and never executed."""

    def __init__(self) -> None:
        self.blocking = self
        self.set_actor(python_actor())


def _with_references(result: Any) -> Any:
    """A result with `Enqueued` for each `Job`, which is a reference to a task."""
    if result is Job:
        return Enqueued
    return list[Enqueued] if get_origin(result) is list and get_args(result) == (Job,) else result


def _to_reference(value: Any) -> Any:
    if isinstance(value, Job):
        return Enqueued(value.id, value.created)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _to_jobs(value: Any, find_task: FindTask) -> Any:
    match value:
        case Enqueued():
            return Job(value.id, value.created, find_task)
        case [Enqueued(), *_]:
            return [Job(one.id, one.created, find_task) for one in value]
        case _:
            return value


def readable_twice(given: Any) -> Any:
    """An argument that can be read twice: a list in the place of an iterator."""
    return list(given) if isinstance(given, Iterator) else given
