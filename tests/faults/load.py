"""The load: enqueues a mix of tasks at a rate, also during outages of the database, and interferes with some by hand.

Each task's body has a key of its own. A commit that was acknowledged is `enqueued` in the history; where the reply was
lost, the key is `unsure`, and the task is enqueued again: under another key, or, where it is unique, under the same.

    PEERD_HISTORY=folder python -m tests.faults.load URL --tasks 20000 --rate 60
"""

from __future__ import annotations

import argparse
import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from peerd import Client, Job
from peerd.domain.errors import DatabaseUnavailable, TaskNotFound, UniqueKeyTaken
from peerd.domain.lifecycle import IllegalTransition
from peerd.domain.task import Call
from peerd.operate.request import json_text
from tests.faults import history, jobs, versions
from tests.faults.task_mix import PlannedTask, plan

BATCH_SIZE: Final = 50
"""Tasks in one transaction at the most."""
PAUSE: Final = 0.2
"""Seconds after a database did not answer."""
TICK: Final = 0.05
CONNECTION_LOST_ERRORS: Final = (DatabaseUnavailable, DBAPIError)
MOVE_BY_SQL: Final = sa.text(
    "UPDATE tasks SET node_id = NULL, status = 'pending', lease = lease + 1, deadline_at = NULL"
    " WHERE id = :id AND status = 'working'"
)


class LoadResult(msgspec.Struct):
    """What a load did."""

    accepted: int = 0
    unsure: int = 0
    by_hand: int = 0


class EnqueueAttempt(msgspec.Struct):
    """A planned task, and the key of its next try."""

    number: int
    planned: PlannedTask
    tries: int = 0

    @property
    def key(self) -> str:
        """A unique task keeps its key, so that it can be tried again; any other gets a new one."""
        return f"{self.number}" if self.planned.unique else f"{self.number}.{self.tries}"

    def call(self) -> Call:
        args = {"key": self.key, **self.planned.args}
        if self.planned.handler == jobs.ROWS:
            return Call(jobs.ROWS, "", json_text("body", args))
        return versions.HANDLERS[self.planned.handler].with_args(**args)

    def options(self) -> dict[str, Any]:
        unique = {"unique": self.key, "unique_for": "forever"} if self.planned.unique else {}
        return {**self.planned.options, **unique}


class LoadGenerator:
    """A load on one database.

    Args:
        client: it is not closed.
        wanted: the tasks, in their order.
        rate: tasks a second.
        rng: when hands interfere, and how many tasks go together.
        is_over: called now and then; what was not enqueued by then is left out.
    """

    def __init__(
        self,
        client: Client,
        wanted: Iterable[PlannedTask],
        *,
        rate: float,
        rng: random.Random,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.did = LoadResult()
        self._client = client
        self._wanted = (EnqueueAttempt(number, planned) for number, planned in enumerate(wanted))
        self._again: deque[EnqueueAttempt] = deque()
        self._rate = rate
        self._rng = rng
        self._is_over = is_over
        self._hands: list[tuple[float, int, str]] = []

    def run(self) -> LoadResult:
        """Enqueue all, at the rate; after an outage what was missed comes at once."""
        began = time.monotonic()
        taken = 0
        while not self._is_over():
            due = int((time.monotonic() - began) * self._rate) - taken
            batch = self._next(min(max(due, 0), self._rng.choice((1, 1, 5, BATCH_SIZE))))
            taken += len(batch)
            if batch:
                self._enqueue(batch)
            elif due > 0 and not self._hands:
                break
            else:
                time.sleep(TICK)
            self._interfere()
        return self.did

    def _next(self, count: int) -> list[EnqueueAttempt]:
        again = [self._again.popleft() for _ in range(min(count, len(self._again)))]
        return again + list(islice(self._wanted, count - len(again)))

    def _enqueue(self, batch: Sequence[EnqueueAttempt]) -> None:
        """All in one transaction where they go with the same options, otherwise one after another."""
        alike = [one for one in batch if not one.options().keys() - {"max_attempts"}]
        by_attempts: dict[int, list[EnqueueAttempt]] = {}
        for one in alike:
            by_attempts.setdefault(one.planned.options["max_attempts"], []).append(one)
        for attempts, group in by_attempts.items():
            self._write(
                group,
                lambda group=group, attempts=attempts: self._client.enqueue_many(  # type: ignore[misc]
                    [one.call() for one in group], max_attempts=attempts
                ),
            )
        for one in batch:
            if one not in alike:
                self._write([one], lambda one=one: [self._client.enqueue(one.call(), **one.options())])  # type: ignore[misc]

    def _write(self, batch: Sequence[EnqueueAttempt], write: Callable[[], list[Job]]) -> None:
        try:
            written = write()
        except CONNECTION_LOST_ERRORS as error:
            self._note_unsure(batch, error)
            return
        for one, job in zip(batch, written, strict=True):
            call = one.call()
            history.record("enqueued", task=job.id, queue=call.queue, name=call.name, key=one.key)
            self.did.accepted += 1
            if one.planned.manual_action:
                heapq.heappush(
                    self._hands, (time.monotonic() + self._rng.uniform(0.05, 1.5), job.id, one.planned.manual_action)
                )

    def _note_unsure(self, batch: Sequence[EnqueueAttempt], error: Exception) -> None:
        for one in batch:
            history.record("unsure", key=one.key, error=str(error)[:200])
            self.did.unsure += 1
            self._again.append(msgspec.structs.replace(one, tries=one.tries + 1))
        time.sleep(PAUSE)

    def _interfere(self) -> None:
        while self._hands and self._hands[0][0] <= time.monotonic():
            _, task_id, action = heapq.heappop(self._hands)
            history.record("hand", task=task_id, action=action)
            try:
                self._act(task_id, action)
            except (IllegalTransition, TaskNotFound, UniqueKeyTaken):
                pass  # it has ended meanwhile
            except CONNECTION_LOST_ERRORS:
                time.sleep(PAUSE)  # whether it was done, the database's own record says
            else:
                self.did.by_hand += 1

    def _act(self, task_id: int, action: str) -> None:
        match action:
            case "cancel":
                self._client.tasks.cancel(task_id)
            case "retry":
                self._client.tasks.retry(task_id)
            case "move":
                self._client.tasks.move(task_id, None)
            case _:
                self._client.database.run(lambda connection: connection.execute(MOVE_BY_SQL, {"id": task_id}).rowcount)


def run(
    url: str,
    *,
    tasks: int,
    rate: float,
    seed: int,
    max_update: float,
    nodes: Sequence[str] = (),
    is_over: Callable[[], bool] = lambda: False,
) -> LoadResult:
    """Enqueue so many tasks at a rate, and record them in the history ($PEERD_HISTORY).

    Args:
        url: of the database, directly: enqueues during an outage are recorded as `unsure`.
        tasks: how many are to be accepted.
        rate: tasks a second.
        seed: of the mix, and of what is done by hand.
        max_update: of the nodes' managers, seconds.
        nodes: names of registered nodes, to which some tasks are pinned.
        is_over: called now and then; what was not enqueued by then is left out.
    """
    wanted = plan(seed, tasks, max_update=max_update, nodes=nodes)
    with Client(url) as client:
        return LoadGenerator(client, wanted, rate=rate, rng=random.Random(seed), is_over=is_over).run()


def main() -> None:
    """The same as a program."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.load")
    parser.add_argument("url")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-update", type=float, default=6.0)
    parser.add_argument("--nodes", nargs="*", default=[])
    given = parser.parse_args()
    print(  # noqa: T201
        run(
            given.url,
            tasks=given.tasks,
            rate=given.rate,
            seed=given.seed,
            max_update=given.max_update,
            nodes=given.nodes,
        )
    )


if __name__ == "__main__":
    main()
