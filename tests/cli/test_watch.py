"""`peerd tasks watch`: what it reports, when it ends, and what it draws in a terminal."""

from __future__ import annotations

import json
from io import StringIO
from itertools import islice
from threading import Thread

from rich.console import Console

from peerd.cli.output import LiveDisplay
from peerd.cli.tasks.watch import ChangeKind, TaskChange, TaskWatcher, WatchState, apply_poll, show_changes
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
    holder.end(running, Released("its process must end"))
    assert poll(state, client) == [(ChangeKind.RETURNED, first.id)]
    holder.end(holder.claim(), Released("its process must end"))
    again = holder.claim()
    assert poll(state, client) == [(ChangeKind.STARTED, again.id)], "it was released and taken again in between"
    holder.end(again, Done())
    holder.claim()
    assert poll(state, client) == [(ChangeKind.STARTED, second.id), (ChangeKind.ENDED, again.id)]
    client.tasks.delete(second.id)
    assert poll(state, client) == [(ChangeKind.GONE, second.id)]
    assert not state.running
    client.enqueue("video")
    short = client.tasks.get(holder.run(Done()).id)
    assert [change.kind for change in apply_poll(state, [], {}, [short])] == [ChangeKind.ENDED]
    assert apply_poll(state, [], {}, [short]) == []
    client.tasks.retry(short.id)
    short = client.tasks.get(holder.run(Done()).id)
    assert [change.kind for change in apply_poll(state, [], {}, [short])] == [ChangeKind.ENDED]


def test_watching_ends_when_nothing_is_left(peerd: Peerd, client: Client, holder: ClaimingProcess) -> None:
    def finish() -> None:
        for task in client.tasks.list(status="working"):
            holder.end(task, Done())
        holder.run(Done())

    client.enqueue_many(["video", "video"])
    holder.report(holder.claim(), 0.5, "half")
    finishing = Thread(target=finish)
    finishing.start()
    lines = peerd("tasks", "watch", "--until-done", "--every", "50ms", "--json").lines
    finishing.join()
    assert {json.loads(line)["change"] for line in lines} <= set(ChangeKind)


def test_watching_named_tasks_fails_when_one_is_dead_or_does_not_exist(
    peerd: Peerd, client: Client, holder: ClaimingProcess
) -> None:
    client.enqueue_many(["video", "video"])
    holder.run(Failed(error="OSError: the disk is full"))
    holder.run(Done())
    dead, done = peerd("tasks", "watch", "1", "2", "--until-done", status=1).lines
    assert dead[10:].strip().startswith("1  video  dead in 0 s on video-1  OSError: the disk is full")
    assert done[10:].strip().startswith("2  video  done in ")
    assert "there is no task 999" in peerd("tasks", "watch", "2", "999", "--until-done", "--json", status=1).err
    assert "there is no task 7" in peerd("tasks", "watch", "7", status=1).err, "there is nothing to watch"


def terminal(kind: str = "xterm") -> Console:
    """A terminal of 120 columns."""
    return Console(file=StringIO(), force_terminal=True, width=120, height=30, highlight=False, _environ={"TERM": kind})


def shown(console: Console, display: LiveDisplay, changes: list[TaskChange], watcher: TaskWatcher) -> str:
    """What is sent to the terminal for changes."""
    console.file = sent = StringIO()
    show_changes(display, console, changes, watcher)
    return sent.getvalue()


ERASE = "\x1b[2J"


def test_bars_of_a_terminal_that_has_become_narrower_leave_nothing_behind(
    client: Client, holder: ClaimingProcess
) -> None:
    """A terminal wraps or cuts what was drawn for another width, to an unknown number of rows."""
    client.enqueue_many(["video", "video"])
    console = terminal()
    ended = TaskChange(ChangeKind.ENDED, client.tasks.get(holder.run(Done()).id))
    holder.report(holder.claim(), 0.5, "half of it")
    watcher = TaskWatcher(client, [], None, None)
    [changes] = islice(watcher.poll(), 1)
    with LiveDisplay(console) as display:
        shown(console, display, [ended, *changes], watcher)
        assert ERASE not in shown(console, display, [], watcher), "nothing has changed"
        console.width = 60
        drawn = shown(console, display, [], watcher)
    assert ERASE in drawn.partition("video")[0]
    assert "done" in drawn, "earlier lines are printed again"
    assert "half of it" in drawn.partition("done")[2]


def test_a_terminal_that_cannot_be_redrawn_gets_a_line_for_each_change(client: Client, holder: ClaimingProcess) -> None:
    client.enqueue("video")
    running = holder.claim()
    watcher = TaskWatcher(client, [], None, None)
    console = terminal("dumb")
    with LiveDisplay(console) as display:
        started = shown(console, display, [TaskChange(ChangeKind.STARTED, running)], watcher)
    assert "1  video  started" in started
