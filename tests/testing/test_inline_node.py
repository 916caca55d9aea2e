"""The inline node itself: the life cycle of its worker, its database and clock, its events, its end."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from peerd import Client, Context, Queue, Status, Task
from peerd.domain.errors import DatabaseUnavailable, NodeReplaced
from peerd.store.connection.database import Database
from peerd.testing import AttemptEnded, AttemptStarted, Clock, ClockNotGovernable, FaultyDatabase, InlineNode
from tests.support.servers import DatabaseFactory
from tests.testing.mail import Legacy, mail, send, statuses


def test_a_worker_of_whole_rows_is_set_up_and_torn_down_and_has_its_own_settings() -> None:
    legacy = Legacy()
    with InlineNode(mail, legacy) as node:
        node.client.enqueue("legacy", body={"a": 1})
        node.client.enqueue("legacy", text="{")
        [done, failed] = node.run_all()
        assert (done.result, failed.status, failed.progress) == ('{"a":1}', Status.FAILURE, 0.25)
        assert failed.start_at == node.clock.now + timedelta(seconds=60)
        assert legacy.calls == ["setup"]
    assert legacy.calls == ["setup", "teardown"]


def test_settings_are_those_of_a_section_of_the_config() -> None:
    queue = Queue("q")

    @queue.task
    async def fails(ctx: Context) -> None:
        raise ValueError(ctx.options["word"])

    with InlineNode(queue, delay_ratio="1h", max_attempts=1, options={"word": "boom"}, name="video-1") as node:
        node.client.enqueue(fails.with_args())
        [task] = node.run_all()
        assert (task.status, task.error) == (Status.DEAD, "ValueError: boom")
        assert [one.name for one in node.client.nodes.list()] == ["video-1"]
    with pytest.raises(TypeError, match="no setting 'processes'"):
        InlineNode(queue, processes=2)


def test_chores_purge_and_expire_by_the_clock() -> None:
    with InlineNode(mail) as node:
        done = node.client.enqueue(send.with_args())
        node.run_all()
        late = node.client.enqueue(send.with_args(), finish_in="1m")
        node.clock.advance("61m")
        assert node.run_all() == []
        assert node.client.tasks.find(late.id) is None
        assert node.client.tasks.find(done.id) is not None
        node.run_chores()
        assert node.client.tasks.find(done.id) is None


def test_a_node_may_share_a_database_with_the_application(tmp_path: Path) -> None:
    clock = Clock()
    with closing(Database(f"sqlite:///{tmp_path / 'app.sqlite'}")) as database, Client(database) as client:
        job = client.enqueue(send.with_args())
        with InlineNode(mail, database=database, clock=clock) as node:
            assert node.clock is clock
            clock.set(client.now() + timedelta(days=365))  # the task was written by the real clock
            assert statuses(node.run_all()) == ["done"]
        assert job.refresh().status is Status.DONE
        assert [one.incarnation for one in client.nodes.list()] == [None]


def test_a_node_of_the_same_name_replaces_one_that_was_left_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.sqlite'}"
    with InlineNode(mail, database=url) as one, InlineNode(mail, database=url) as other:
        one.client.enqueue(send.with_args())
        with pytest.raises(NodeReplaced):
            one.run_one()
        assert statuses(other.run_all()) == ["done"]


def test_the_clock_of_postgresql_cannot_be_set(database_factory: DatabaseFactory) -> None:
    url = database_factory("postgresql")
    with InlineNode(mail, database=url) as node:
        job = node.client.enqueue(send.with_args())
        node.run_all()
        assert job.status is Status.DONE
        with pytest.raises(ClockNotGovernable):
            node.clock.advance("1m")


def test_a_database_that_is_unavailable_at_the_end_causes_no_error(tmp_path: Path) -> None:
    with closing(FaultyDatabase(f"sqlite:///{tmp_path / 'app.sqlite'}")) as database:
        with InlineNode(mail, database=database) as node:
            node.faults.away()
            with pytest.raises(DatabaseUnavailable):
                node.run_all()
        assert Client(database).nodes.list()[0].incarnation is None
    with InlineNode(mail, database=f"sqlite:///{tmp_path / 'app.sqlite'}") as node:
        node.faults.fail("claim")
    with (
        closing(Database(f"sqlite:///{tmp_path / 'app.sqlite'}")) as plain,
        InlineNode(mail, database=plain) as node,
        pytest.raises(TypeError, match="give InlineNode a FaultyDatabase"),
    ):
        node.faults.away()


def test_two_runs_of_a_test_write_the_same_rows() -> None:
    def rows() -> list[dict[str, Any]]:
        with InlineNode(mail) as node:
            node.client.enqueue(send.with_args())
            node.client.enqueue(send.with_args("unknown"))
            node.run_all()
            node.clock.advance("1h")
            node.run_all()
            return [{name: getattr(task, name) for name in Task.__struct_fields__} for task in node.client.tasks.list()]

    assert rows() == rows()


def test_the_events_of_the_node_are_recorded() -> None:
    with InlineNode(mail) as node:
        job = node.client.enqueue(send.with_args("unknown"))
        node.run_all()
        assert node.events.wait(AttemptStarted, task_id=job.id).number == 1
        assert node.events.wait(AttemptEnded, task_id=job.id, outcome="failure").retry_in == 300.0
        assert node.events.of(AttemptEnded, outcome="done") == []


def test_a_worker_whose_setup_fails_leaves_nothing_behind() -> None:
    class Broken(Legacy):
        async def setup(self) -> None:
            raise ValueError("no licence")

    node = InlineNode(Broken())
    with pytest.raises(ValueError, match="no licence"), node:
        pass
    assert not Path(node.database.url.database or "").exists()
