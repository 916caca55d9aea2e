from __future__ import annotations

import pytest

from peerd.domain.errors import InvalidFilter
from peerd.domain.node_request import (
    MAX_PROCESSES_OF_KIND,
    MAX_WAIT,
    NodeCommand,
    ReloadArguments,
    ScaleArguments,
    StackArguments,
    StateArguments,
    decode_command,
    encode_command,
)
from peerd.supervision.plan import MAX_PROCESSES
from tests.support.rows import rows


def test_as_many_processes_can_be_requested_as_the_master_allows() -> None:
    assert MAX_PROCESSES_OF_KIND == MAX_PROCESSES


@rows("command", [
    StateArguments(), ReloadArguments(), ReloadArguments(("video", "größe"), config_only=True, wait=2.5),
    ScaleArguments("video", 0), StackArguments(2**62, 4711),
])  # fmt: skip
def test_a_command_is_read_as_it_was_written(command: NodeCommand) -> None:
    assert decode_command(encode_command(command)) == command


@rows("make, field", [
    (lambda: ReloadArguments(()), "kinds"), (lambda: ReloadArguments(("x",) * 101), "kinds"),
    (lambda: ReloadArguments(("",)), "kinds"), (lambda: ReloadArguments(("a\0b",)), "kinds"),
    (lambda: ReloadArguments(wait=0.0), "timeout"), (lambda: ReloadArguments(wait=MAX_WAIT + 1), "timeout"),
    (lambda: ReloadArguments(wait=float("nan")), "timeout"), (lambda: ScaleArguments("x" * 201, 1), "kind"),
    (lambda: ScaleArguments("video", -1), "count"), (lambda: ScaleArguments("video", True), "count"),
    (lambda: ScaleArguments("video", 1001), "count"),
])  # fmt: skip
def test_wrong_arguments_are_refused_with_the_name_of_the_field(make: object, field: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidFilter) as error:
        make()
    assert error.value.field == field


@rows(
    "text",
    [
        "", "null", "[]", "{}", '{"type":"halt"}', '{"type":"state","more":1}', '{"type":"scale","kind":"video"}',
        '{"type":"scale","kind":"video","count":1.5}', '{"type":"stack","task_id":"1","pid":2}', "[" * 5_000,
    ],
)  # fmt: skip
def test_what_is_no_command_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no request that a node can carry out"):
        decode_command(text)
