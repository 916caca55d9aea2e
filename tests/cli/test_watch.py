from __future__ import annotations

import json
from io import StringIO
from itertools import islice
from threading import Thread

import pytest
from rich.console import Console

from peerd.cli.output.live_display import LiveDisplay
from peerd.cli.tasks.watch import TaskWatcher, show_changes
from peerd.cli.tasks.watch_state import ChangeKind, TaskChange, WatchState, apply_poll
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Done, Failed, Released
from peerd.domain.task import Task
from peerd.operate.client import Client
from tests.cli.conftest import Peerd
from tests.unit.operate.claiming_process import ClaimingProcess


def poll(state: WatchState, client: Client) -> list[tuple[ChangeKind, int]]:
    """The changes since the last poll."""
    working = client.tasks.list(status=Status.WORKING)
    others: dict[int, Task | None] = {
        task_id: client.tasks.find(task_id) for task_id in state.tracked - {task.id for task in working}
    }
    return [(change.kind, change.task.id) for change in apply_poll(state, working, others)]


def test_each_change_is_reported_once(client: Client, holder: ClaimingProcess) -> None:
    state = WatchState()
    first, second = client.enqueue_many(["video", "video"])
    assert poll(state, client) == []
    running = holder.claim()
    assert poll(state, client) == [(ChangeKind.STARTED, first.id)]
    assert poll(state, client) == []
    holder.report(running, 0.5, "half")
    assert poll(state, client) == [(ChangeKind.PROGRESSED, first.id)]
    holder.end(running, Done())
    holder.claim()
    assert poll(state, client) == [(ChangeKind.STARTED, second.id), (ChangeKind.ENDED, first.id)]
    client.tasks.delete(second.id)
    assert poll(state, client) == [(ChangeKind.GONE, second.id)]
    assert not state.running


def test_a_task_that_was_released_and_taken_again_is_started_again(client: Client, holder: ClaimingProcess) -> None:
    state = WatchState()
    client.enqueue("video")
    running = holder.claim()
    assert poll(state, client) == [(ChangeKind.STARTED, running.id)]
    holder.end(running, Released("its process must end"))
    assert poll(state, client) == [(ChangeKind.RETURNED, running.id)]
    again = holder.claim()
    holder.end(again, Released("its process must end"))
    holder.claim()
    assert poll(state, client) == [(ChangeKind.STARTED, running.id)]


def test_a_named_task_is_followed_until_it_has_ended(client: Client, holder: ClaimingProcess) -> None:
    job = client.enqueue("video")
    state = WatchState([job.id])
    assert poll(state, client) == []
    holder.run(Failed(error="no"))
    assert poll(state, client) == [(ChangeKind.ENDED, job.id)]
    assert (state.unfinished, state.dead) == (set(), {job.id})


@pytest.mark.parametrize("as_json", [False, True])
def test_watching_ends_when_nothing_is_left(
    peerd: Peerd, client: Client, holder: ClaimingProcess, *, as_json: bool
) -> None:
    client.enqueue_many(["video", "video"])
    holder.report(holder.claim(), 0.5, "half")

    def finish() -> None:
        for task in client.tasks.list(status="working"):
            holder.end(task, Done())
        holder.run(Done())

    finishing = Thread(target=finish)
    finishing.start()
    answer = peerd("tasks", "watch", "--until-done", "--every", "50ms", *(["--json"] if as_json else []))
    finishing.join()
    if as_json:
        assert {json.loads(line)["change"] for line in answer.lines} <= set(ChangeKind)
    else:
        assert all(line[2] == ":" for line in answer.lines)


def test_a_task_that_started_and_ended_between_two_polls_is_reported_once(
    client: Client, holder: ClaimingProcess
) -> None:
    state = WatchState()
    client.enqueue("video")
    task = client.tasks.get(holder.run(Done()).id)
    assert [change.kind for change in apply_poll(state, [], {}, [task])] == [ChangeKind.ENDED]
    assert apply_poll(state, [], {}, [task]) == []
    client.tasks.retry(task.id)
    again = client.tasks.get(holder.run(Done()).id)
    assert [change.kind for change in apply_poll(state, [], {}, [again])] == [ChangeKind.ENDED]


def test_watching_named_tasks_fails_when_one_is_dead(peerd: Peerd, client: Client, holder: ClaimingProcess) -> None:
    client.enqueue_many(["video", "video"])
    holder.run(Failed(error="OSError: the disk is full"))
    holder.run(Done())
    answer = peerd("tasks", "watch", "1", "2", "--until-done", status=1)
    dead, done = answer.lines
    assert dead[10:].strip().startswith("1  video  dead in 0 s on video-1  OSError: the disk is full")
    assert done[10:].strip().startswith("2  video  done in ")


@pytest.mark.parametrize("option", ["--every=500ms", "--json"])
def test_a_named_task_that_does_not_exist_is_an_error(
    peerd: Peerd, client: Client, holder: ClaimingProcess, option: str
) -> None:
    client.enqueue_many(["video", "video"])
    holder.claim()
    finishing = Thread(target=lambda: holder.end(client.tasks.get(1), Done()))
    finishing.start()
    answer = peerd("tasks", "watch", "1", "999", "--until-done", option, status=1)
    finishing.join()
    assert "there is no task 999" in answer.err
    assert "there is no task 7" in peerd("tasks", "watch", "7", status=1).err, "there is nothing to watch"


ERASE = "\x1b[2J"


def test_bars_of_a_terminal_that_has_become_narrower_leave_nothing_behind(
    client: Client, holder: ClaimingProcess
) -> None:
    """A terminal wraps or cuts what was drawn for another width, to an unknown number of rows."""
    client.enqueue_many(["video", "video"])
    console = Console(file=StringIO(), force_terminal=True, width=120, height=30, highlight=False)
    ended = TaskChange(ChangeKind.ENDED, client.tasks.get(holder.run(Done()).id))
    holder.report(holder.claim(), 0.5, "half of it")
    watcher = TaskWatcher(client, [], None, None)
    [changes] = islice(watcher.poll(), 1)
    with LiveDisplay(console) as display:
        show_changes(display, console, [ended], watcher)
        show_changes(display, console, changes, watcher)
        console.file = StringIO()
        show_changes(display, console, [], watcher)
        assert ERASE not in console.file.getvalue(), "nothing has changed"
        console.file = StringIO()  # before the width, which the display's thread may notice at once
        console.width = 60
        show_changes(display, console, [], watcher)
        drawn = console.file.getvalue()
    assert ERASE in drawn.partition("video")[0]
    assert "done" in drawn, "earlier lines are printed again"
    assert "half of it" in drawn.partition("done")[2]
