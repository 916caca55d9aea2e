"""Tasks are run in the test itself, and all that is decided about them is decided as on a real node."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from peerd import Cancel, Client, Context, Dead, JobFailed, Queue, Retry, Snooze, Status, Task, TaskWorker
from peerd.domain.errors import DatabaseAway, NodeReplaced
from peerd.store.database import Database
from peerd.testing import AttemptEnded, AttemptStarted, ClaimLost, Clock, ClockNotGovernable, FaultyDatabase, InlineNode
from tests.support.servers import DatabaseFactory
from tests.unit.work import declared

mail = Queue("mail")
ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@mail.task(max_attempts=4)
async def send(ctx: Context, to: str = "you") -> str:
    ran.append(to)
    await ctx.progress(0.5, "dialled")
    if to == "nobody":
        raise OSError("no such address")
    return f"sent to {to} by {ctx.node}"


@mail.task
def look(ctx: Context, outcome: str) -> object:
    return {"retry": Retry("10m"), "snooze": Snooze("1h"), "cancel": Cancel("no"), "dead": Dead("spam")}[outcome]


@mail.task
async def invite(ctx: Context, guests: list[str]) -> None:
    for guest in guests:
        await ctx.enqueue(send.with_args(guest), priority=20)
    ran.append("invited")


@mail.task(timeout=0.01)
async def wait(ctx: Context) -> None:
    await asyncio.sleep(60)


class Legacy(TaskWorker):
    queues = ("legacy",)
    delay_ratio = 60.0

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def setup(self) -> None:
        self.calls.append("setup")

    async def teardown(self) -> None:
        self.calls.append("teardown")

    async def handle_task(self, task: Task) -> object:
        await self.set_progress(task, 0.25, "a quarter")
        if task.json is None:
            raise ValueError("no json")
        return task.json


def statuses(tasks: list[Task]) -> list[str]:
    return [task.status.value for task in tasks]


def test_a_task_is_run_when_the_test_says_so_and_not_before() -> None:
    with InlineNode(mail) as node:
        job = node.client.enqueue(send.with_args("me"))
        assert (job.status, ran) == (Status.PENDING, [])
        task = node.run_one()
        assert task is not None
        assert (task.id, task.status, task.lease, task.attempts, task.progress) == (job.id, Status.DONE, 1, 0, 1.0)
        assert job.result(timeout=0) == "sent to me by inline"
        assert node.run_one() is None


@pytest.mark.parametrize("kind", ["sqlite", "mariadb", "postgresql"])
def test_a_failure_is_retried_when_its_time_has_come(database_factory: DatabaseFactory, kind: str) -> None:
    with InlineNode(mail, database=database_factory(kind), delay_ratio="0s" if kind == "postgresql" else "5m") as node:
        job = node.client.enqueue(send.with_args("nobody"))
        if kind != "postgresql":
            for attempt in range(1, 4):
                assert statuses(node.run_all()) == ["failure"]
                assert job.refresh().task is not None
                node.clock.advance(attempt * 300 - 0.01)
                assert node.run_all() == []
                node.clock.advance(0.01)
        assert statuses(node.run_all())[-1] == "dead"
        assert [attempt.number for attempt in node.client.tasks.attempts(job.id)] == [1, 2, 3, 4]
        with pytest.raises(JobFailed, match="no such address"):
            job.result(timeout=0)
    assert ran == ["nobody"] * 4


def test_tasks_run_in_the_order_of_the_claim() -> None:
    with InlineNode(mail) as node:
        for to, options in {
            "late": {"start_in": "1m"}, "low": {"priority": 1}, "first": {}, "second": {},
            "high": {"priority": 99}, "pinned": {"node": "inline"},
        }.items():  # fmt: skip
            node.client.enqueue(send.with_args(to), **options)  # type: ignore[arg-type]
        node.run_all()
        node.clock.advance("1m")
        node.run_all()
    assert ran == ["high", "first", "second", "pinned", "low", "late"]


def test_a_paused_queue_and_a_drained_node_claim_nothing() -> None:
    with InlineNode(mail) as node:
        node.client.enqueue(send.with_args())
        node.client.queues.pause("mail", duration="1h")
        assert node.run_all() == []
        node.client.queues.resume("mail")
        node.client.nodes.drain("inline")
        assert node.run_all() == []
        node.client.nodes.undrain("inline")
        assert statuses(node.run_all()) == ["done"]


def test_every_outcome_is_written_as_a_worker_writes_it() -> None:
    with InlineNode(mail) as node:
        jobs = {how: node.client.enqueue(look.with_args(how)) for how in ("retry", "snooze", "cancel", "dead")}
        jobs["timeout"] = node.client.enqueue(wait.with_args())
        jobs["arguments"] = node.client.enqueue("mail", name="look", body={"wrong": 1})
        node.run_all()
        rows = {how: node.client.tasks.get(job.id) for how, job in jobs.items()}
        labels = {how: [one.outcome for one in node.client.tasks.attempts(job.id)] for how, job in jobs.items()}
        assert {how: row.status.value for how, row in rows.items()} == {
            "retry": "failure", "snooze": "scheduled", "cancel": "canceled", "dead": "dead", "timeout": "failure",
            "arguments": "dead",
        }  # fmt: skip
        assert labels == {
            "retry": ["failure"], "snooze": ["snoozed"], "cancel": ["canceled"], "dead": ["dead"],
            "timeout": ["timeout"], "arguments": ["dead"],
        }  # fmt: skip
        assert rows["retry"].start_at == node.clock.now + timedelta(minutes=10)
        assert rows["snooze"].start_at == node.clock.now + timedelta(hours=1)


def test_handlers_of_one_name_in_two_queues_have_each_its_own_attempts() -> None:
    strict, patient, usual = Queue("strict"), Queue("patient"), Queue("usual")

    async def fails() -> None:
        raise ValueError("boom")

    calls = [
        strict.task(name="it", max_attempts=1)(fails).with_args(),
        patient.task(name="it", max_attempts=5)(fails).with_args(),
        usual.task(name="it")(fails).with_args(),
    ]
    with InlineNode(strict, patient, usual) as node:
        node.client.enqueue_many(calls)
        ended = {task.queue: (task.status.value, task.max_attempts) for task in node.run_all()}
    assert ended == {"strict": ("dead", 1), "patient": ("failure", 5), "usual": ("failure", 3)}


def test_what_a_handler_enqueues_is_run_in_its_turn() -> None:
    with InlineNode(mail) as node:
        node.client.enqueue(send.with_args("later"))
        node.client.enqueue(invite.with_args(["a", "b"]), priority=30)
        assert statuses(node.run_all()) == ["done"] * 4
    assert ran == ["invited", "a", "b", "later"]


def test_hooks_are_called_around_each_attempt() -> None:
    queue = Queue("hooked")
    calls: list[str] = []

    @queue.before_attempt
    def before(ctx: Context) -> None:
        calls.append(f"before {ctx.task.attempts}")

    @queue.after_attempt
    async def after(ctx: Context, outcome: object) -> None:
        calls.append(f"after {type(outcome).__name__}")

    @queue.task
    def work() -> None:
        calls.append("work")

    with InlineNode(queue) as node:
        node.client.enqueue(work.with_args())
        node.run_all()
    assert calls == ["before 0", "work", "after Done"]


def test_a_unique_key_holds_until_its_task_has_ended() -> None:
    with InlineNode(mail) as node:
        first = node.client.enqueue(send.with_args(), unique="k")
        assert node.client.enqueue(send.with_args(), unique="k").id == first.id
        node.run_all()
        assert node.client.enqueue(send.with_args(), unique="k").created
    assert len(ran) == 1


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


def test_a_handler_in_a_process_of_its_own_is_run_in_one() -> None:
    with InlineNode(declared.apart) as node:
        job = node.client.enqueue(declared.double.with_args(21))
        [task] = node.run_all()
        assert (task.process_id, job.result(timeout=0)) == (1, 42)


def test_eagerly_a_task_has_been_run_when_enqueue_returns() -> None:
    with InlineNode(mail, eager=True) as node:
        job = node.client.enqueue(invite.with_args(["a", "b"]))
        assert (job.status, ran) == (Status.DONE, ["invited", "a", "b"])
        assert [job.status for job in node.client.enqueue_many([send.with_args("c"), send.with_args("d")])] == [
            "done"
        ] * 2
        assert node.client.enqueue(send.with_args("late"), start_in="1h").status is Status.SCHEDULED
        node.clock.advance("1h")
        node.run_all()
    assert ran == ["invited", "a", "b", "c", "d", "late"]


def test_a_handler_that_enqueues_through_the_eager_client_is_not_run_inside_itself() -> None:
    queue = Queue("q")
    order: list[str] = []

    @queue.task
    def parent() -> None:
        node.client.enqueue(child.with_args())
        order.append("parent")

    @queue.task
    def child() -> None:
        order.append("child")

    with InlineNode(queue, eager=True) as node:
        node.client.enqueue(parent.with_args())
    assert order == ["parent", "child"]


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
        [job] = await node.client.aio.enqueue_many([note.with_args()])
        assert job.status is Status.DONE
    assert loops == [asyncio.get_running_loop()] * 3


async def test_the_wrong_way_of_running_says_which_one_is_right() -> None:
    node = InlineNode(mail)
    with pytest.raises(RuntimeError, match="enter it first"):
        node.run_all()
    async with node:
        with pytest.raises(RuntimeError, match=r"await node\.aio"):
            node.run_all()
    with pytest.raises(RuntimeError, match="async with"):
        await InlineNode(mail).aio.run_all()


def test_below_with_there_is_no_aio() -> None:
    with InlineNode(mail) as node, pytest.raises(RuntimeError, match=r"call node\.run_all"):
        _ = node.aio


async def test_a_cancelled_attempt_is_given_back_as_by_a_process_that_stops() -> None:
    queue = Queue("q")
    began = asyncio.Event()

    @queue.task
    async def stays() -> None:
        began.set()
        await asyncio.sleep(60)

    async with InlineNode(queue) as node:
        job = await node.client.aio.enqueue(stays.with_args())
        running = asyncio.create_task(node.aio.run_all())
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await node.client.aio.refresh(job)).status is Status.PENDING
        assert [one.outcome for one in await node.client.aio.tasks.attempts(job.id)] == ["released"]


def test_a_task_that_was_taken_away_while_it_ran_keeps_what_was_done_to_it() -> None:
    queue = Queue("q")

    @queue.task
    async def cancels_itself(ctx: Context) -> str:
        await ctx.client.aio.tasks.cancel(ctx.task.id, "not wanted")
        return "too late"

    with InlineNode(queue) as node:
        node.client.enqueue(cancels_itself.with_args())
        [task] = node.run_all()
        assert (task.status, task.error, task.result) == (Status.CANCELED, "not wanted", None)
        assert node.facts.of(ClaimLost, task_id=task.id)
        assert node.facts.of(AttemptEnded) == []


@pytest.mark.parametrize("operation", ["claim", "complete", "conclude"])
def test_lost_replies_run_nothing_twice(operation: str) -> None:
    with InlineNode(mail, delay_ratio=60.0) as node:
        jobs = [node.client.enqueue(send.with_args(to)) for to in ("a", "nobody")]
        node.faults.lose_reply(operation)
        if operation == "claim":
            with pytest.raises(DatabaseAway):
                node.run_all()
        node.run_all()
        assert [job.refresh().status for job in jobs] == [Status.DONE, Status.FAILURE]
        assert [node.client.tasks.get(job.id).lease for job in jobs] == [1, 1]
    assert ran == ["a", "nobody"]


def test_a_result_that_the_database_refuses_fails_the_attempt() -> None:
    with InlineNode(mail) as node:
        node.faults.fail("complete", error=ValueError("too strange"))
        node.client.enqueue(send.with_args())
        [task] = node.run_all()
        assert (task.status, task.error) == (
            Status.FAILURE,
            "its outcome could not be written: ValueError: too strange",
        )


def test_a_task_that_is_due_again_at_once_does_not_run_for_ever() -> None:
    queue = Queue("q")

    @queue.task
    async def again() -> Snooze:
        return Snooze(0)

    with InlineNode(queue) as node:
        node.client.enqueue(again.with_args())
        with pytest.raises(RuntimeError, match="5 attempts were run, and more may be due: the last was task 1"):
            node.run_all(limit=5)


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


def test_a_node_of_the_same_name_takes_over_what_one_that_was_left_behind_held(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.sqlite'}"
    with InlineNode(mail, database=url) as one, InlineNode(mail, database=url) as other:
        one.client.enqueue(send.with_args())
        with pytest.raises(NodeReplaced):
            one.run_one()
        assert statuses(other.run_all()) == ["done"]


def test_postgresql_has_no_clock_to_set(database_factory: DatabaseFactory) -> None:
    url = database_factory("postgresql")
    with InlineNode(mail, database=url) as node:
        job = node.client.enqueue(send.with_args())
        node.run_all()
        assert job.status is Status.DONE
        with pytest.raises(ClockNotGovernable):
            node.clock.advance("1m")


def test_a_database_that_is_away_at_the_end_is_left_in_good_order(tmp_path: Path) -> None:
    with closing(FaultyDatabase(f"sqlite:///{tmp_path / 'app.sqlite'}")) as database:
        with InlineNode(mail, database=database) as node:
            node.faults.away()
            with pytest.raises(DatabaseAway):
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
            node.client.enqueue(send.with_args("nobody"))
            node.run_all()
            node.clock.advance("1h")
            node.run_all()
            return [{name: getattr(task, name) for name in Task.__struct_fields__} for task in node.client.tasks.list()]

    assert rows() == rows()


def test_what_happens_is_told_as_facts() -> None:
    with InlineNode(mail) as node:
        job = node.client.enqueue(send.with_args("nobody"))
        node.run_all()
        assert node.facts.wait(AttemptStarted, task_id=job.id).number == 1
        assert node.facts.wait(AttemptEnded, task_id=job.id, outcome="failure").retry_in == 300.0
        assert node.facts.of(AttemptEnded, outcome="done") == []


def test_a_worker_whose_setup_fails_leaves_nothing_behind() -> None:
    class Broken(Legacy):
        async def setup(self) -> None:
            raise ValueError("no licence")

    node = InlineNode(Broken())
    with pytest.raises(ValueError, match="no licence"), node:
        pass
    assert not Path(node.database.url.database or "").exists()
