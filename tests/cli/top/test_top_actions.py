"""What `peerd top` does to tasks, queues and nodes: after a question, and with the reason where it is refused."""

from __future__ import annotations

import pytest

from peerd import Client
from peerd.domain.access import Actor
from peerd.domain.lifecycle import Status
from peerd.operate.actors import cli_actor
from tests.cli.top.conftest import Top, opened_top
from tests.remote.conftest import answering_node


async def select(top: Top, status: str) -> None:
    """Show the tasks of a status; the cursor is on the first."""
    for _ in range(10):
        await top.until(lambda: " t " in top.line("1 Tasks"))
        if f" t {status} " in top.text:
            return
        await top.press("t")
    raise AssertionError(top.text)


ACTIONS = (
    # status, key, question, message, task, status afterwards
    ("pending", "c", "Cancel task 7 (mail/greet)?", "task 7 was canceled", 7, Status.CANCELED),
    ("pending", "b", "Bury task 6 (mail/notify)?", "task 6 was buried", 6, Status.BURIED),
    ("done", "k", "Kick task 1 (video/transcode)?", "not done: ", 1, Status.DONE),
    ("dead", "r", "Retry task 2 (video/transcode)?", "task 2 was retried", 2, Status.PENDING),
    ("scheduled", "k", "Kick task 8 (mail/remind)?", "task 8 was kicked", 8, Status.PENDING),
    ("done", "d", "Delete task 1 (video/transcode)?", "task 1 was deleted", 1, None),
)


@pytest.mark.slow
async def test_an_action_on_a_task_is_done_after_yes(filled: Client) -> None:
    async with opened_top(filled.acting_as(cli_actor())) as top:
        for status, key, question, message, task_id, after in ACTIONS:
            before = filled.tasks.get(task_id).status
            await select(top, status)
            await top.until_shown(question.partition("(")[2].partition(")")[0])
            for no in ("n", "escape", "q"):
                await top.press(key, no)
                assert question not in top.text
            await top.press(key, "x", "enter", "tab", "1")
            assert question in top.text, "other keys do nothing"
            assert filled.tasks.get(task_id).status is before
            await top.press("y")
            await top.until_shown(message)
            found = filled.tasks.find(task_id)
            assert (found and found.status) is after
            if after is not before:
                await top.until(lambda row=f" {task_id}  ": not any(line.startswith(row) for line in top.lines))  # type: ignore[misc]
    [entry] = filled.audit.page(limit=1).items
    assert (entry.operation, entry.target) == ("tasks.delete", "1"), "as one of the command line"


async def test_queues_are_paused_resumed_and_kicked(filled: Client) -> None:
    async with opened_top(filled) as top:
        for typed, message, until in (("", "until it is resumed", None), ("1h", "for 1h", "an hour"), ("soon", "", "")):
            await top.press("2", "p", *typed)
            await top.until_shown("Pause queue mail?", "1h or 30m; nothing: until it is resumed"[len(typed) * 100 :])
            await top.press("enter")
            await top.until_shown(f"queue mail is paused {message}" if message else "not done: duration: 'soon'")
            if message:
                await top.until(lambda: "paused" in top.line(" mail  "))
                [mail] = [queue for queue in filled.queues.list() if queue.name == "mail"]
                assert (mail.paused_until is None) is (until is None)
        await top.press("u", "y")
        await top.until_shown("queue mail is open")
        await top.until(lambda: "paused" not in top.line(" mail  "))
        await top.press("k", "y")
        await top.until_shown("1 task of mail pending now")
        await top.press("k", "y")
        await top.until_shown("no task of mail is buried or delayed")
    assert filled.tasks.get(8).status is Status.PENDING


async def test_a_task_is_moved_to_a_node_and_its_stack_is_shown(filled: Client) -> None:
    async with opened_top(filled) as top:
        with answering_node(filled):
            for keys in (("x",), ("enter", "x")):  # in the table, and on the open task
                await top.press(*keys)
                await top.until_shown("runs in video-1 on video-1", 'File "a.py", line 7, in wait')
                await top.press("escape")
                await top.until_gone("a.py")
        await top.press("m", *"nowhere", "enter")
        await top.until_shown("not done: there is no node 'nowhere'; known are: video-1")
        for typed, message in (("video-1", "may run on video-1 only"), ("", "may run on any node")):
            await top.press("m", *typed, "enter")
            await top.until_shown(f"task 5 {message}")
            assert filled.tasks.get(5).node_id == (1 if typed else None)
        await top.press("m", "y", "escape")
        assert "Move task 5" not in top.text
    assert filled.tasks.get(5).status is Status.PENDING


@pytest.mark.slow
async def test_nodes_are_drained_and_undrained_and_one_that_runs_is_not_forgotten(filled: Client) -> None:
    async with opened_top(filled) as top:
        await top.press("3", "d", "y")
        await top.until_shown("node video-1 claims no more tasks")
        await top.until_shown("draining")
        assert filled.nodes.get("video-1").draining
        await top.press("u", "y")
        await top.until_shown("node video-1 claims tasks again")
        await top.press("f", "y")
        await top.until_shown("not done: ")
        assert not filled.nodes.get("video-1").draining


@pytest.mark.slow
async def test_the_rights_are_those_of_the_client(filled: Client) -> None:
    for role, message in (("viewer", "needs the right operate"), ("operator", "task 5 was canceled")):
        async with opened_top(filled.acting_as(Actor.with_role("ann", role))) as top:
            await top.press("c", "y")
            await top.until_shown(message)
        assert (filled.tasks.get(5).status is Status.CANCELED) is (role == "operator")
    async with opened_top(filled.acting_as(Actor.with_role("ann", "operator", queues=["mail"]))) as top:
        await top.until_shown("the figures of the whole cluster need the right view, of all queues", "0 working")
        await top.press("3", "d", "y")
        await top.until_shown("not done: ")
