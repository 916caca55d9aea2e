"""An error of a server is the error of the database: the same class, text and attributes."""

from __future__ import annotations

import inspect
from typing import Any

from peerd.domain.errors import PeerdError, TaskNotFound
from peerd.domain.lifecycle import Status, TaskEvent
from peerd.operate.wire import errors as wire_errors
from peerd.web.problems import STATUS_OF

SAMPLES: dict[str, Any] = {
    "str": "it's\n\x1b[31m ä",
    "int": 2**62,
    "float": 1.5,
    "list[str]": ["a", "b"],
    "Sequence[str]": ["a", "b"],
    "Sequence[int]": [1, 2],
    "str | None": None,
    "Status": Status.DONE,
    "TaskEvent": TaskEvent.CANCEL,
}
"""A value of each annotation of the arguments of an error."""


def kinds_of_api() -> list[type[PeerdError]]:
    known = wire_errors.known_errors()
    subclasses = {kind for root in STATUS_OF for kind in (root, *root.__subclasses__()) if kind.__name__ in known}
    return sorted(subclasses, key=lambda kind: kind.__name__)


def test_each_error_of_the_api_that_operations_raise_can_be_made_again() -> None:
    of_operations = {kind for kind in STATUS_OF if kind.__module__.startswith("peerd.domain.")}
    assert of_operations <= set(kinds_of_api())


def made_again(kind: type[PeerdError]) -> str | None:
    """What is wrong with an error that is made again from its data."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    error = kind(*(SAMPLES[str(one.annotation)] for one in parameters))
    again = wire_errors.error_from_data(kind.__name__, wire_errors.error_data(error))
    is_same = type(again) is kind and (str(again), vars(again)) == (str(error), vars(error))
    return None if is_same else f"{kind.__name__}: {again!r} of {error!r}"


def test_an_error_is_made_again_from_its_data() -> None:
    wrong = [found for kind in kinds_of_api() if (found := made_again(kind))]
    assert wrong == [], "does it keep each argument in an attribute of the same name?"


def test_what_is_no_error_of_the_domain_is_not_made() -> None:
    wrong: tuple[tuple[str, object], ...] = (
        ("TaskNotFound", {}),
        ("TaskNotFound", {"task_id": "7"}),
        ("TaskNotFound", {"task_id": 7, "more": 1}),
        ("TaskNotFound", [7]),
        ("SystemExit", {"code": 1}),
        ("PeerdError", {}),
        ("CommandError", {"message": "a"}),
        ("__class__", {}),
    )
    assert [(code, data) for code, data in wrong if wire_errors.error_from_data(code, data) is not None] == []
    assert wire_errors.error_data(TaskNotFound(10**20_000)) is None, "an error of large values is sent without them"
