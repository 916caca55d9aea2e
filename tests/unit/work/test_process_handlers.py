from __future__ import annotations

import asyncio
from pathlib import Path

from peerd import Status
from peerd.domain.outcome import Failed
from peerd.testing import eventually_async, run_inline
from peerd.work.attempts.attempt_outcome import StopReason
from tests.unit.work import process_handlers
from tests.unit.work.run_execution import execution


async def test_exceptions_and_outcomes_are_returned_from_a_process() -> None:
    retried = await run_inline(process_handlers.raises.with_args("value"))
    assert (retried.status, retried.error) == (Status.FAILURE, "ValueError: boom")
    assert "in raises" in str(retried.traceback)
    assert (await run_inline(process_handlers.raises.with_args("key"))).status is Status.DEAD
    assert (await run_inline(process_handlers.returns_outcome.with_args("retry"))).retry_in == 7.0
    assert (await run_inline(process_handlers.returns_outcome.with_args("dead"))).status is Status.DEAD
    for handler, error in (
        (process_handlers.exits.with_args(), "SystemExit: 4"),
        (process_handlers.raises_without_text.with_args(), "WithoutText: (its __str__ raised ValueError)"),
        (
            process_handlers.leaves.with_args(5),
            "HandlerProcessDied: the handler's process ended with status 5 before it answered",
        ),
    ):
        ran = await run_inline(handler)
        assert (ran.status, ran.error) == (Status.FAILURE, error)


async def test_a_large_result_is_returned_from_a_process_and_a_larger_one_is_refused() -> None:
    ran = await run_inline(process_handlers.double.with_args(21), node="here")
    assert (ran.result, ran.progress) == (42, [(0.5, "on here")])
    assert len((await run_inline(process_handlers.large.with_args(900_000))).result) == 900_000
    assert "more than 1048576" in str((await run_inline(process_handlers.large.with_args(2_000_000))).error)


async def test_a_timeout_kills_the_process_and_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    running = execution(process_handlers.apart, "starts_a_child", f'{{"pids": "{pids}"}}')
    ending = asyncio.ensure_future(running.outcome())
    await eventually_async(pids.exists)
    running.end(StopReason.TIMEOUT)
    outcome = await ending
    assert isinstance(outcome, Failed)
    assert outcome.label == "timeout"
    await eventually_async(lambda: not any(map(is_alive, pids.read_text().split())))


def is_alive(pid: str) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
