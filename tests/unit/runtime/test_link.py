from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from peerd.runtime.frames import FrameDecoder
from peerd.runtime.process.control_thread import MEASURE_INTERVAL, ControlThread, LoopMonitor, StopRequested
from peerd.runtime.process.link import Link

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    mine, masters = socket.socketpair()
    with mine, masters:
        yield mine, masters


def make_link(end: socket.socket, role: str = "worker") -> Link:
    return Link(end, slot="video-1", kind="video", role=role, node="here", grace=10.0)


def received_frames(masters: socket.socket) -> list[dict[str, object]]:
    masters.setblocking(False)
    try:
        return FrameDecoder().feed(masters.recv(65536))
    except BlockingIOError:
        return []


class Watched:
    def __init__(self, end: socket.socket) -> None:
        self.thread = ControlThread(end, "video-1", release_time=5.0, loop_monitor=LoopMonitor(None, print))
        self.thread.grace = 30.0
        self.events: list[object] = []

    def attach(self) -> ControlThread:
        self.thread.attach(self.events.append)
        return self.thread


def test_a_process_that_drains_has_no_deadline_until_a_stop_or_a_hang_gives_it_one(ends: Ends) -> None:
    watched = Watched(ends[0])
    thread = watched.attach()
    thread._handle_frame({"type": "stop", "grace": None, "replaced": True})
    assert (thread.replaced, thread.stopping, thread._deadline) == (True, False, None)
    thread._handle_frame({"type": "stop", "grace": 10.0, "replaced": False})
    assert (thread.replaced, thread.stopping) == (False, True)
    assert thread._deadline is not None
    assert watched.events == [StopRequested(math.inf), StopRequested(10.0)]
    link = make_link(ends[0])
    events: list[object] = []
    link._control.attach(events.append)
    link._control._handle_frame({"type": "stop", "grace": None, "replaced": True})
    link._on_hang(60.0)
    assert [message["type"] for message in received_frames(ends[1])] == ["hung"]
    assert events == [StopRequested(math.inf), StopRequested(10.0)]


def test_the_first_signal_stops_with_the_grace_and_the_second_without(ends: Ends) -> None:
    watched = Watched(ends[0])
    watched.thread._count_signals(b"\0\x0f\0")
    watched.attach()
    assert watched.events == [StopRequested(30.0)], "what came before a listener was attached is kept"
    assert [watched.thread.ask_to_stop(grace) for grace in (30.0, 60.0)] == [False] * 2, "none leaves less time"
    watched.thread._count_signals(b"\x0f")
    assert watched.events == [StopRequested(30.0), StopRequested(0.0)]


def test_the_lost_master_and_the_signal_of_its_death_are_one_stop_request(ends: Ends) -> None:
    watched = Watched(ends[0])
    thread = watched.attach()
    ends[1].close()
    thread._read()
    thread._count_signals(b"\x0f")
    assert (thread.lost, watched.events) == (True, [StopRequested(30.0)])


def test_sending_does_not_block_while_the_master_does_not_read(ends: Ends) -> None:
    link = make_link(ends[0])
    for _ in range(20):
        link.send({"type": "much", "text": "x" * 500_000})
    assert not link._control.flushed.is_set()
    ends[1].close()
    link._control._read()
    assert link.master_lost
    link.send({"type": "unread"})
    assert link._control.flushed.is_set(), "nothing delays a process that has lost its master"


def test_a_taint_is_reported_once_and_sets_the_exit_status_but_the_agent_continues_with_an_alert(ends: Ends) -> None:
    link = make_link(ends[0])
    link.tainted("first")
    link.tainted("second")
    link.recycle("third")
    assert received_frames(ends[1]) == [{"type": "tainted", "reason": "first"}]
    assert (link.status, link._control.stopping) == (70, True)
    agent = make_link(ends[0], role="agent")
    agent.tainted("first")
    agent.tainted("second")
    assert [message["type"] for message in received_frames(ends[1])] == ["alert", "alert"]
    assert (agent.status, agent._control.stopping) == (0, False)


ORPHAN = """
import os, socket, subprocess, sys, time
from peerd.runtime.process.control_thread import ControlThread
from peerd.runtime.process.control_thread import LoopMonitor

master, link = socket.socketpair()
if os.fork():
    os.read(0, 1)
    os._exit(0)
control_thread = ControlThread(link, "video-1", release_time=5.0, loop_monitor=LoopMonitor(None, print))
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
print(child.pid, flush=True)
while os.getppid() == control_thread._master:
    time.sleep(0.01)
control_thread._kill_process_group()
print(child.wait(5), flush=True)
"""


def test_a_process_whose_master_has_died_kills_its_children_before_it_has_read_the_end_of_the_link() -> None:
    command = [sys.executable, "-c", ORPHAN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.stdin.close()  # its parent, the master, ends; the other end of the link stays open
        try:
            assert process.stdout.readline() == f"{-signal.SIGKILL}\n"
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


async def test_the_lag_is_how_long_the_loop_took_and_a_loop_that_does_not_respond_is_reported_once() -> None:
    monitor = LoopMonitor(None, print)
    monitor.attach(asyncio.get_running_loop())
    now = time.monotonic()
    assert monitor.measure_if_due(now) == {"type": "vitals", "lag": 0.0, "in_flight": 0}
    assert monitor.measure_if_due(now + 0.1) is None, "it is not time yet"
    time.sleep(0.05)  # noqa: ASYNC251 - what is measured
    await asyncio.sleep(0)
    frame = monitor.measure_if_due(now + MEASURE_INTERVAL)
    assert frame is not None
    assert isinstance(frame["lag"], float)
    assert frame["lag"] >= 0.05
    hangs: list[float] = []
    monitor = LoopMonitor(5.0, hangs.append)
    monitor.attach(asyncio.get_running_loop())
    for seconds in (0.0, 2.0, 4.0, 6.0, 8.0):  # the loop, in which this test runs, does not respond
        monitor.measure_if_due(1000.0 + seconds)
    assert hangs == [6.0]
    await asyncio.sleep(0)
    for seconds in (10.0, 12.0, 14.0, 16.0, 18.0):
        monitor.measure_if_due(1000.0 + seconds)
    assert len(hangs) == 2, "another hang is reported again"
