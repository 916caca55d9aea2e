"""The entry points of the API: invalid input is refused with a clear error before a write; the rest comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peerd.domain.errors import InvalidTask, PeerdError
from peerd.domain.task import NewTask
from peerd.operate.request import new_task
from peerd.store.connection.database import Database
from peerd.store.enqueue import Enqueued, enqueue
from peerd.store.tasks.pages import get_task
from tests.fuzz import values
from tests.fuzz.conftest import searched


@pytest.fixture(scope="module")
def store(module_database: str) -> Iterator[Database]:
    with closing(Database(module_database)) as database:
        yield database


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
SENSIBLE = {
    "priority": st.integers(-(2**63) + 1, 2**63 - 1),
    "max_attempts": st.integers(1, 2**31 - 1),
    "timeout": st.floats(0.001, 1e9),
    "start_in": st.floats(0, 1e8),
    "finish_in": st.floats(2e8, 3e8),
    "unique": texts.filter(bool),
    "unique_for": st.sampled_from(["unfinished", "forever", 60.0]),
    "name": texts,
    "body": values.json,
    "limit_key": texts,
    "trace_context": st.text("0123456789abcdef-", max_size=60),
}
HOSTILE = {
    **dict.fromkeys(("start_at", "finish_at"), values.moments | values.anything),
    **dict.fromkeys(("text", "bytes"), st.binary(max_size=50) | values.anything),
}
OPTIONS = st.fixed_dictionaries({}, optional={**SENSIBLE, **HOSTILE}) | st.fixed_dictionaries(
    {}, optional=dict.fromkeys([*SENSIBLE, *HOSTILE], values.anything)
)


@searched(50)
@given(queue=st.sampled_from(["q", "video:high", "a" * 200]) | values.words, options=OPTIONS)
@example(queue="q", options={"body": "\ud800"})
@example(queue="q", options={"unique_for": 10**4000, "unique": "a"})
@example(queue="q", options={"priority": 10**4000})
@example(queue="q", options={"timeout": 1e-320})
@example(queue="q", options={"text": "x" * (64 * 2**20 + 1)})
@example(queue="q", options={"start_at": values.MOMENTS[2]})
def test_a_task_is_refused_or_comes_back_as_it_went_in(store: Database, queue: str, options: dict[str, Any]) -> None:
    try:
        new = new_task(queue, **options)
    except (PeerdError, TypeError) as error:
        assert len(str(error).encode()) < 2000  # noqa: PT017 - it quotes what it refuses, and not all of it
        return
    with suppress(InvalidTask):  # larger than this server takes
        _comes_back(store, new, store.run(enqueue, new))


def _comes_back(store: Database, new: NewTask, answer: Enqueued) -> None:
    task = store.read(get_task, answer.id)
    if answer.created:
        kept = attrgetter("queue", "name", "body", "body_bytes", "priority", "max_attempts", "timeout", "unique_key")
        assert (kept(task), task.limit_key) == (kept(new), new.limit_key)
        assert (task.start_at is None) == (new.start_at is None and new.start_in is None)
