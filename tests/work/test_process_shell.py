"""What the shell of a process does round its service, whatever that is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

import peerd.shell
from peerd.runtime.frames import receive
from peerd.runtime.observability.error_reporting import ErrorReport
from peerd.runtime.observability.events import ComponentFailed, EventBus
from peerd.runtime.process.link import Link
from peerd.shell import ProcessShell, Service
from peerd.store.processes import list_processes
from tests.work.harness import RunnerHarness


class Recorded(Service):
    """Notes what it is called with, and fails where it is told to."""

    heartbeat_every = 0.01

    def __init__(self, fails_in: str = "") -> None:
        self.calls: list[str] = []
        self._fails_in = fails_in

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call == self._fails_in:
            raise RuntimeError(f"{call} failed")

    async def start(self, shell: ProcessShell) -> None:
        self._note("start")

    async def run(self) -> None:
        self._note("run")
        await asyncio.sleep(0.05)

    async def drain(self, grace: float) -> None:
        self._note("drain")

    async def close(self, grace: float) -> None:
        self._note("close")


@pytest.fixture
def ends(harness: RunnerHarness) -> Iterator[tuple[socket.socket, Link]]:
    harness.world.node("a")
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    with ours, theirs:
        yield ours, Link(theirs, slot="w-1", kind="w", role="worker", node="a")


async def test_a_process_is_registered_and_drained_before_it_is_closed(
    harness: RunnerHarness, ends: tuple[socket.socket, Link]
) -> None:
    master, link = ends
    service, events = Recorded(), EventBus(harness.events)
    shell = ProcessShell(service, harness.database, events)
    identity = await shell.start(link)
    [row] = harness.database.read(list_processes)
    assert (row.id, row.slot, row.ended_at) == (identity["process_id"], "w-1", None)
    await shell.run()
    for _ in range(2):
        events.emit(ComponentFailed(component="c", error="no", again_in=1.0))
    await shell.stop(1.0)
    assert service.calls == ["start", "run", "drain", "close"]
    assert shell.process.draining.is_set()
    alerts = [receive(master), receive(master)]
    assert [alert["alert"] for alert in alerts if alert] == ["exception"] * 2, "the end sends what was held back"


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_start_that_fails_says_why_and_ends_the_row_of_the_process_if_it_can(
    harness: RunnerHarness, ends: tuple[socket.socket, Link], *, is_away: bool
) -> None:
    if is_away:
        harness.database.fail("end_process", times=None)
    with pytest.raises(RuntimeError, match="start failed"):
        await ProcessShell(Recorded("start"), harness.database, EventBus(harness.events)).start(ends[1])
    [row] = harness.database.read(list_processes, ended=True)
    assert row.cause == (None if is_away else "it did not start")


@pytest.mark.parametrize("fails_in", ["run", "close"])
async def test_an_exception_that_ends_the_process_is_given_to_the_hook_of_errors(
    harness: RunnerHarness, ends: tuple[socket.socket, Link], fails_in: str
) -> None:
    reports: list[ErrorReport] = []
    shell = ProcessShell(Recorded(fails_in), harness.database, EventBus(harness.events), error_hook=reports.append)
    await shell.start(ends[1])
    with pytest.raises(RuntimeError, match=fails_in):
        await (shell.run() if fails_in == "run" else shell.stop(1.0))
    assert [(report.what, report.error) for report in reports] == [("w-1", f"RuntimeError: {fails_in} failed")]


async def test_a_process_whose_heartbeat_has_ended_is_replaced(
    harness: RunnerHarness, ends: tuple[socket.socket, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(peerd.shell, "keep_heartbeat", fail)
    master, link = ends
    shell = ProcessShell(Recorded(), harness.database, EventBus(harness.events))
    await shell.start(link)
    running = asyncio.create_task(shell.run())
    message = await asyncio.to_thread(receive, master)
    assert message is not None
    assert (message["type"], message["reason"]) == ("tainted", "its heartbeat has ended: RuntimeError: no more")
    await running
