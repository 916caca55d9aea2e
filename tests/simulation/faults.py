"""Planned faults: of processes, nodes, the database, the clock, and of single calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerd.domain.errors import DatabaseUnavailable
from tests.simulation.node import AGENT, SimulatedNode
from tests.simulation.plan import PlannedEvent

if TYPE_CHECKING:
    from tests.simulation.process import SimulatedProcess
    from tests.simulation.threads import SimulatedThread, StoreCall
    from tests.simulation.world import World

OF_CALLS = frozenset(
    (
        "lose the answer", "delay the answer", "fail the call", "let the call come late", "freeze in the answer",
        "kill in the answer", "kill before the call", "kill, and the call comes late",
    )
)  # fmt: skip
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
    if one.what in OF_CALLS:
        world.next_call_fault = one
        return
    match one.what:
        case "database away":
            _take_database_away(world, seconds=5.0 + 150.0 * one.extent)
        case "lock a row":
            _lock_a_row(world, one)
        case "step the clock":
            world.step_clock(360.0 * (one.extent - 0.5))
        case "kill a process" | "kill a worker" | "freeze a process" | "recycle a worker" | "kill a gateway":
            _to_a_process(world, one)
        case "freeze a gateway" | "recycle a gateway":
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
    process.hinder()
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
            process.hindered_at = max(process.hindered_at, later)
        case "kill in the answer":
            process.kill("signal SIGKILL")
        case "freeze in the answer":
            thread.answer(value, error)
            process.freeze(2.0 + 200.0 * fault.extent)


def _lock_a_row(world: World, one: PlannedEvent) -> None:
    """Another session writes the row of a running task; its transaction may stay open for longer than max_update."""
    running = [row.id for row in world.rules.rows.values() if row.status == "working"]
    if running:
        world.locks.lock(running[int(one.target * len(running))], until=world.now + 60.0 + 200.0 * one.extent)


def _take_database_away(world: World, seconds: float) -> None:
    world.database_away_until = world.now + seconds
    for process in world.processes:
        process.hindered_at = max(process.hindered_at, world.database_away_until)


def _to_a_process(world: World, one: PlannedEvent) -> None:
    wanted = one.what.rpartition(" ")[2]
    candidates = [process for process in world.processes if process.alive and wanted in ("process", process.info.role)]
    if not candidates:
        return
    process = candidates[int(one.target * len(candidates))]
    match one.what:
        case "freeze a process" | "freeze a gateway":
            process.freeze(2.0 + 200.0 * one.extent)
        case "recycle a worker" | "recycle a gateway":
            if process.ready:
                process.asked_to_stop = True
                process.link.watch.ask_to_stop(10.0 * one.extent)
        case _:
            process.kill("signal SIGKILL")


def _to_a_node(world: World, one: PlannedEvent) -> None:
    candidates = [node for node in world.nodes if node.up]
    if not candidates:
        return
    node = candidates[int(one.target * len(candidates))]
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
        case "begin a second life":
            _start_second_node(world, node, seconds)


def _start_second_node(world: World, node: SimulatedNode, seconds: float) -> None:
    """A machine is cut off; a second one is started under its name; then the first one is back."""
    if AGENT not in node.processes:
        return
    node.freeze(seconds)
    node.retired = True
    second = SimulatedNode(world, node.name, node.slots)
    second.starts_at = world.now + 1.0
    world.nodes.append(second)
