"""Planned faults: of processes, nodes, the database, the clock, and of single calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from peerd.domain.errors import DatabaseUnavailable
from tests.simulation.node import AGENT, SimulatedNode
from tests.simulation.plan import PlannedEvent

if TYPE_CHECKING:
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.threads import SimulatedThread, StoreCall
    from tests.simulation.world import World

T = TypeVar("T")
AWAY = DatabaseUnavailable("the connection was lost")
BATCH = "_execute_runs"
"""The operation by which a gateway process executes a batch."""
OUTCOMES = frozenset(("complete", "complete_available", "record_outcomes", BATCH))
CLAIMS = frozenset(("claim", "claim_limited"))
WRITES = OUTCOMES | frozenset(
    ("claim", "claim_limited", "touch", "report_progress", "release_tasks_of_process", "release_unknown_claims",
     "rescue_untouched", "register_process", "register_incarnation", "enqueue", "stage_due")
)  # fmt: skip


def matches_call(fault: PlannedEvent, call: StoreCall) -> bool:
    if fault.target < 0.4:
        return call.name in OUTCOMES
    return call.name in WRITES if fault.target < 0.8 else True


def apply(world: World, one: PlannedEvent) -> None:
    world.note(f"fault: {one.what}")
    world.history.count(one.what)
    if "call" in one.what or "answer" in one.what:
        world.next_call_fault = one
        return
    match one.what:
        case "database away":
            world.database_away_until = world.now + 5.0 + 150.0 * one.extent
            for process in world.processes:
                process.hinder(until=world.database_away_until)
        case "lock a row":  # another session writes it; its transaction may stay open for longer than max_update
            running = [row.id for row in world.rules.rows.values() if row.status == "working"]
            if running:
                world.locked_until[_choose(running, one)] = world.now + 60.0 + 200.0 * one.extent
        case "step the clock":
            world.step_clock(360.0 * (one.extent - 0.5))
        case what if what.endswith((" process", " worker", " gateway")):
            _to_a_process(world, one)
        case _:
            _to_a_node(world, one)


def inject_into_call(
    world: World, fault: PlannedEvent, process: SimulatedProcess, thread: SimulatedThread, call: StoreCall
) -> bool:
    """Let a fault happen to this call.

    Returns:
        whether it happened: to lose the answer of a claim without tasks would have no effect.
    """
    match fault.what:
        case "fail the call":
            thread.answer(error=AWAY)
        case "let the call come late":
            world.late.append((process, call))
            thread.answer(error=AWAY)
        case "kill, and the call comes late":
            world.late.append((process, call))
            process.kill("signal SIGKILL")
        case "kill before the call":
            process.kill("signal SIGKILL")
        case _:
            value, error = world.make(process, call)
            if call.name in CLAIMS and error is None and not value.tasks:
                thread.answer(value)
                return False
            _inject_into_answer(fault, process, thread, value, error)
    world.note(f"fault injected into {process} {call.name}: {fault.what}")
    process.hinder(until=world.now)
    return True


def _inject_into_answer(
    fault: PlannedEvent, process: SimulatedProcess, thread: SimulatedThread, value: object, error: BaseException | None
) -> None:
    match fault.what:
        case "lose the answer":
            thread.answer(error=AWAY)
        case "delay the answer":
            later = process.world.now + 1.0 + 30.0 * fault.extent
            thread.answer(value, error, at=later)
            process.hinder(until=later)
        case "kill in the answer":
            process.kill("signal SIGKILL")
        case "freeze in the answer":
            thread.answer(value, error)
            process.freeze(2.0 + 200.0 * fault.extent)


def _choose(candidates: Sequence[T], one: PlannedEvent) -> T:
    return candidates[int(one.target * len(candidates))]


def _to_a_process(world: World, one: PlannedEvent) -> None:
    wanted = one.what.rpartition(" ")[2]
    candidates = [process for process in world.processes if process.alive and wanted in ("process", process.link.role)]
    if not candidates:
        return
    process = _choose(candidates, one)
    match one.what.split()[0]:
        case "freeze":
            process.freeze(2.0 + 200.0 * one.extent)
        case "recycle" if process.ready:
            process.ask_to_stop(10.0 * one.extent)
        case "kill":
            process.kill("signal SIGKILL")


def _to_a_node(world: World, one: PlannedEvent) -> None:
    candidates = [node for node in world.nodes if node.up]
    if not candidates:
        return
    node = _choose(candidates, one)
    seconds = 2.0 + 200.0 * one.extent
    match one.what:
        case "kill a node":
            node.kill(down_for=seconds / 2)
        case "kill a master":
            node.lose_master(down_for=seconds / 20)
        case "stop a node":
            node.leave()
        case "freeze a node":
            node.freeze(seconds)
        case "let a node sleep":
            node.sleep(seconds)
        case "begin a second life" if AGENT in node.processes:  # under its name, while it is cut off; then it is back
            node.freeze(seconds)
            node.retired = True
            second = SimulatedNode(world, node.name, node.slots)
            second.starts_at = world.now + 1.0
            world.nodes.append(second)
