from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from peerd import Client, Context, Queue, Status, Task
from peerd.domain.errors import DatabaseUnavailable, NodeReplaced
from peerd.store.connection.database import Database
from peerd.testing import AttemptEnded, Clock, ClockNotGovernable, FaultyDatabase, InlineNode
from tests.support.servers import DatabaseFactory
from tests.testing.mail import Legacy, invite, mail, ran, send, statuses


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
    broken = Legacy()
    broken.setup = broken.fail_setup  # type: ignore[method-assign]
    node = InlineNode(broken)
    with pytest.raises(ValueError, match="no licence"), node:
        pass
    assert not Path(node.database.url.database or "").exists(), "something was left behind"


def test_settings_are_those_of_a_section_of_the_config() -> None:
    queue = Queue("q")

    @queue.task
    async def fails(ctx: Context) -> None:
        raise ValueError(ctx.options["word"])

    with InlineNode(queue, delay_ratio="1h", max_attempts=1, options={"word": "boom"}, name="video-1") as node:
        job = node.client.enqueue(fails.with_args())
        [task] = node.run_all()
        assert (task.status, task.error) == (Status.DEAD, "ValueError: boom")
        assert [one.name for one in node.client.nodes.list()] == ["video-1"]
        assert node.events.wait(AttemptEnded, task_id=job.id, outcome="dead").retry_in is None
    with pytest.raises(TypeError, match="no setting 'processes'"):
        InlineNode(queue, processes=2)


def test_chores_purge_and_expire_by_the_clock_and_two_runs_write_the_same_rows() -> None:
    def rows() -> list[dict[str, Any]]:
        with InlineNode(mail) as node:
            done, late = node.client.enqueue(send.with_args()), node.client.enqueue(send.with_args("unknown"))
            node.run_all()
            late = node.client.enqueue(send.with_args(), finish_in="1m")
            node.clock.advance("61m")
            node.run_all()
            tasks = node.client.tasks
            found = [{name: getattr(task, name) for name in Task.__struct_fields__} for task in tasks.list()]
            assert (tasks.find(late.id), tasks.find(done.id) is not None) == (None, True)
            node.run_chores()
            assert tasks.find(done.id) is None
            return found

    assert rows() == rows()


def test_a_node_may_share_a_database_with_the_application_and_with_its_successor(tmp_path: Path, clock: Clock) -> None:
    with closing(Database(f"sqlite:///{tmp_path / 'app.sqlite'}")) as database, Client(database) as client:
        job = client.enqueue(send.with_args())
        with InlineNode(mail, database=database, clock=clock) as node:
            assert node.clock is clock
            clock.set(client.now() + timedelta(days=365))  # the task was written by the real clock
            assert statuses(node.run_all()) == ["done"]
        assert job.refresh().status is Status.DONE
        assert [one.incarnation for one in client.nodes.list()] == [None]
        with InlineNode(mail, database=str(database.url)) as one, InlineNode(mail, database=str(database.url)) as other:
            one.client.enqueue(send.with_args())
            with pytest.raises(NodeReplaced):
                one.run_one()
            assert statuses(other.run_all()) == ["done"]


def test_the_clock_of_postgresql_cannot_be_set(database_factory: DatabaseFactory, clock: Clock) -> None:
    url = database_factory("postgresql")
    with InlineNode(mail, database=url) as node:
        job = node.client.enqueue(send.with_args())
        node.run_all()
        assert job.status is Status.DONE
        with pytest.raises(ClockNotGovernable, match="Test on SQLite or MariaDB"):
            node.clock.advance("1m")
    with closing(Database(url)) as database, pytest.raises(ClockNotGovernable):
        clock.govern(database)


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


def test_eagerly_a_task_has_been_run_when_enqueue_returns_and_none_inside_another() -> None:
    with InlineNode(mail, eager=True) as node:
        job = node.client.enqueue(invite.with_args(["a", "b"]))
        assert (job.status, ran) == (Status.DONE, ["invited", "a", "b"])
        both = node.client.enqueue_many([send.with_args("c"), send.with_args("d")])
        assert [job.status for job in both] == ["done"] * 2
        assert node.client.enqueue(send.with_args("late"), start_in="1h").status is Status.SCHEDULED
        node.clock.advance("1h")
        node.run_all()
    assert ran == ["invited", "a", "b", "c", "d", "late"]


async def test_in_a_coroutine_everything_runs_in_the_tests_own_loop() -> None:
    queue = Queue("q")
    loops: list[asyncio.AbstractEventLoop] = []

    @queue.task
    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    async with InlineNode(queue) as node:
        job = await node.client.aio.enqueue(note.with_args())
        assert statuses(await node.aio.run_all()) == ["done"]
        assert (await node.aio.run_one(), await node.client.aio.result(job, timeout=0)) == (None, None)
        await node.aio.run_chores()
    async with InlineNode(queue, eager=True) as node:
        assert (await node.client.aio.enqueue(note.with_args())).status is Status.DONE
    assert loops == [asyncio.get_running_loop()] * 2


def use_aio_in_a_with_statement() -> None:
    with InlineNode(mail) as node:
        _ = node.aio


async def test_the_wrong_way_of_running_shows_which_one_is_right() -> None:
    node = InlineNode(mail)
    with pytest.raises(RuntimeError, match="enter it first"):
        node.run_all()
    with pytest.raises(RuntimeError, match=r"call node\.run_all"):
        await asyncio.to_thread(use_aio_in_a_with_statement)
    async with node:
        with pytest.raises(RuntimeError, match=r"await node\.aio"):
            node.run_all()
    with pytest.raises(RuntimeError, match="async with"):
        await InlineNode(mail).aio.run_all()
