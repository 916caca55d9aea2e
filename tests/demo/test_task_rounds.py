"""The rounds of new tasks: what each enqueues, and what bounds them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from peerd import Client
from peerd.cli.demo.live_tasks import DAMAGED, DUE, MAX_DEAD, MAX_DUE, ROUNDS_BETWEEN_OTHERS, TaskRounds
from peerd.domain.lifecycle import Status
from peerd.store.schema.migrate import migrate

QUEUE = "demo"
pytestmark = pytest.mark.slow


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Client(f"sqlite:///{tmp_path}/peerd.sqlite") as made:
        migrate(made.database)
        yield made


def bodies_of(client: Client) -> list[dict[str, str]]:
    return [json.loads(task.body or "{}") for task in client.tasks.list(queue=QUEUE, limit=10_000)]


def test_the_first_round_has_a_transcode_a_failing_one_and_one_later_and_none_of_them_become_more_without_end(
    client: Client,
) -> None:
    rounds = TaskRounds(client, QUEUE)
    rounds.enqueue([])
    found = client.tasks.list(queue=QUEUE)
    assert Counter(task.status for task in found) == {Status.PENDING: 2, Status.SCHEDULED: 1}
    assert Counter(body["source"] == DAMAGED for body in bodies_of(client)) == {True: 1, False: 2}
    assert rounds.count == 3
    for task in found:  # those that a hand deletes do not stop the rounds
        client.tasks.delete(task.id)
    for _ in range(ROUNDS_BETWEEN_OTHERS * (MAX_DEAD + 3)):
        rounds.enqueue([])
    bodies = bodies_of(client)
    assert sum(body["source"] == DAMAGED for body in bodies) == MAX_DEAD
    assert len({body["output"] for body in bodies}) == 6


def test_a_round_enqueues_nothing_while_too_many_tasks_are_due(client: Client) -> None:
    client.enqueue(QUEUE, name="transcode")
    [task] = client.tasks.list(queue=QUEUE)
    for status in Status:
        rounds = TaskRounds(client, QUEUE)
        rounds.enqueue([msgspec.structs.replace(task, status=status)] * (MAX_DUE + 1))
        assert (rounds.count == 0) == (status in DUE), status
