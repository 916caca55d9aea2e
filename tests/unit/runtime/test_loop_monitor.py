from __future__ import annotations

import asyncio
import time

from peerd.runtime.process.loop_monitor import MEASURE_INTERVAL, LoopMonitor


async def test_the_lag_is_how_long_the_loop_took_to_respond() -> None:
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


async def test_a_loop_that_does_not_respond_is_reported_once() -> None:
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
