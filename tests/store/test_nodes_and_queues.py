"""Nodes, processes and queues: names, incarnations, heartbeats, pauses."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.errors import NodeNotFound, NodeReplaced, NodeRequestNotFound, NodeUnreachable
from peerd.domain.node_request import NodeRequestStatus, ReloadArguments, ScaleArguments, StateArguments, decode_command
from peerd.store import node_requests, nodes, processes
from peerd.store.due import find_agent_work, find_next_due
from peerd.store.node_requests import NodeRequest
from peerd.store.schema.tables import node_requests as requests_table
from peerd.store.schema.types import seconds_from_now
from tests.store.world import World, at_once


def test_a_node_registers_sends_heartbeats_and_leaves(world: World) -> None:
    node_id = world.run(
        nodes.register_incarnation, "a", "life-1", replaces=None, address="10.0.0.1:7", zone="z", version="0.1.0"
    )
    [found] = world.read(nodes.list_nodes)
    assert (found.address, found.zone, found.version) == ("10.0.0.1:7", "z", "0.1.0")
    assert world.read(nodes.is_node_alive, "a", 10.0)
    with pytest.raises(NodeReplaced, match="'a'"):
        world.run(nodes.heartbeat, "a", "life-0")
    world.run(nodes.deregister_node, "a", "life-0")
    assert world.read(nodes.is_node_alive, "a", 10.0)
    world.run(nodes.deregister_node, "a", "life-1")
    assert not world.read(nodes.is_node_alive, "a", 10.0)
    with pytest.raises(NodeNotFound, match="known are: a"):
        world.run(nodes.set_draining, "b", draining=True)
    assert world.run(nodes.register_incarnation, "a", "life-2", replaces=None) == node_id


def test_of_many_nodes_that_start_under_one_name_one_registers(world: World) -> None:
    for number in range(6):
        name, before = f"node-{number}", "before" if number % 2 else None
        if before:
            world.run(nodes.register_incarnation, name, before, replaces=None)
        answers = at_once(
            [partial(world.run, nodes.register_incarnation, name, f"life-{one}", replaces=before) for one in range(6)]
        )
        assert len([answer for answer in answers if answer is not None]) == 1, name


def test_a_process_has_a_new_identity_at_each_start_and_ends_once(world: World) -> None:
    first, second = world.claimer().process_id, world.claimer().process_id
    assert first != second
    assert world.run(processes.heartbeat_process, first)
    world.run(processes.end_process, first, "killed by signal 9" + "x" * 500)
    world.run(processes.end_process, first, "something else")
    assert not world.run(processes.heartbeat_process, first)
    causes = {one.id: one.cause for one in world.read(partial(processes.list_processes, ended=True))}
    assert (causes[first] or "").startswith("killed by signal 9")
    assert [one.id for one in world.read(processes.list_processes)] == [second]


def test_a_process_that_registers_again_after_a_lost_answer_keeps_its_record(world: World) -> None:
    """Whichever of both registrations the database carries out last: none ends the record that the process uses."""
    unanswered = world.claimer(pid=7).process_id
    neighbour, again = world.claimer(pid=8).process_id, world.claimer(pid=7).process_id
    assert [one.id for one in world.read(processes.list_processes)] == [unanswered, neighbour]
    assert again == unanswered
    assert world.run(processes.heartbeat_process, again)
    world.run(processes.end_process, again, "killed by signal 9")
    assert world.claimer(pid=7).process_id not in {again, neighbour}
    other = world.claimer(node="b").process_id
    world.run(processes.end_earlier_processes, world.node("a"), "a new life")
    assert [one.id for one in world.read(processes.list_processes)] == [other]


EXPIRED, WAITING, RUNNING = NodeRequestStatus.EXPIRED, NodeRequestStatus.WAITING, NodeRequestStatus.RUNNING


def insert(world: World, node: str = "a", within: float = 60.0, command: Any = None) -> int:
    world.node(node)
    arguments = command or StateArguments()
    return world.run(node_requests.insert_request, node, arguments, requested_by="a test", within=within)


def take(world: World, node: str = "a", limit: int = 10) -> list[NodeRequest]:
    return world.run(node_requests.take_requests, world.incarnation(node), limit)


def status(world: World, request_id: int) -> NodeRequestStatus:
    return world.read(node_requests.get_request, request_id).status


def backdate(world: World, request_id: int, **columns: float) -> None:
    values = {column: seconds_from_now(-seconds) for column, seconds in columns.items()}
    row = sa.update(requests_table).where(requests_table.c.id == request_id)
    world.execute(row.values(values))


def test_a_request_is_taken_once_however_many_try(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [insert(world) for _ in range(3)]
    as_read = [world.read(node_requests.get_request, request_id) for request_id in ids]
    taken = at_once([partial(take, world)] * 4)
    assert sorted(request.id for found in taken for request in found) == ids
    assert {status(world, request_id) for request_id in ids} == {RUNNING}
    assert take(world) == []
    monkeypatch.setattr(node_requests, "_read", lambda *_, **__: as_read)
    assert take(world) == [], "another agent has taken them since they were read"


def test_it_is_taken_by_the_incarnation_that_it_is_for(world: World) -> None:
    command = ReloadArguments(("vidéo", "mail"), config_only=True, wait=3.5)
    mine, other = insert(world, "a", command=command), insert(world, "b")
    assert [request.id for request in take(world, "b")] == [other]
    [request] = take(world, "a")
    assert (request.id, request.node, request.requested_by, request.is_reachable) == (mine, "a", "a test", True)
    assert (request.command, decode_command(request.arguments)) == ("reload", command)


def test_it_is_not_taken_after_its_time(world: World) -> None:
    late, fresh = insert(world), insert(world)
    backdate(world, late, expires_at=0.1)
    assert [request.id for request in take(world)] == [fresh]
    assert world.run(node_requests.expire_request, late).status is EXPIRED
    assert world.run(node_requests.expire_request, fresh).status is RUNNING, "it was taken before"


def test_it_ends_once(world: World) -> None:
    request_id = insert(world, command=ScaleArguments("video", 2))

    def finish(result: str | None, error: str | None) -> bool:
        return world.run(node_requests.finish_request, request_id, result=result, error=error)

    assert not finish(result="{}", error=None), "nobody has taken it"
    take(world)
    world.run(node_requests.record_progress, request_id, '{"number":1}')
    assert world.read(node_requests.list_running_requests, world.incarnation())[0].result == '{"number":1}'
    assert finish(result=None, error="broken")
    assert not finish(result="{}", error=None)
    ended = world.read(node_requests.get_request, request_id)
    assert (ended.status, ended.error, ended.result, ended.is_open) == (NodeRequestStatus.FAILED, "broken", None, False)


def test_a_node_that_does_not_run_is_refused_and_so_are_too_many_requests(world: World) -> None:
    with pytest.raises(NodeNotFound):
        world.run(node_requests.insert_request, "x", StateArguments(), requested_by=None, within=1.0)
    for _ in range(node_requests.MAX_OPEN):
        insert(world)
    with pytest.raises(NodeUnreachable, match="100 requests to it are open"):
        insert(world)
    world.node("b")
    world.run(nodes.mark_node_silent, "b", world.incarnation("b"))
    with pytest.raises(NodeUnreachable, match="its heartbeats have ended"):
        insert(world, "b")
    world.run(nodes.deregister_node, "b", world.incarnation("b"))
    with pytest.raises(NodeUnreachable, match="it was stopped"):
        insert(world, "b")


def test_an_agent_sees_a_waiting_request_in_the_statement_that_it_sends_anyway(world: World) -> None:
    def work(node: str) -> bool:
        return world.read(find_agent_work, world.incarnation(node)).has_requests

    assert not work("a")
    insert(world, "a")
    assert (work("a"), work("b")) == (True, False)
    take(world)
    assert not work("a")
    plain, of_agent = world.read(find_next_due), world.read(find_agent_work, "life")
    assert (plain.next_at, plain.first_node) == (of_agent.next_at, of_agent.first_node)


def test_what_nothing_else_can_close_is_closed_and_old_requests_are_deleted(world: World) -> None:
    untaken, interrupted, alive, old = (insert(world, node) for node in ("a", "gone", "b", "a"))
    take(world, "gone")
    take(world, "b")
    for request_id in (untaken, old):
        backdate(world, request_id, expires_at=61.0)
    for request_id in (interrupted, alive):
        backdate(world, request_id, taken_at=61.0)
    world.run(nodes.deregister_node, "gone", world.incarnation("gone"))
    backdate(world, old, created_at=86_401.0)
    assert world.run(node_requests.purge_requests, 500) == 1
    assert status(world, untaken) is EXPIRED
    assert status(world, interrupted) is NodeRequestStatus.FAILED
    assert status(world, alive) is RUNNING
    with pytest.raises(NodeRequestNotFound):
        status(world, old)
