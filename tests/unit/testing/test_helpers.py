from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading

import pytest

from peerd.runtime.observability.events import ChoreRan, EventBus, TasksClaimed
from peerd.testing import EventRecorder, eventually, eventually_async


async def test_an_event_is_waited_for_while_threads_and_the_event_loop_go_on() -> None:
    recorder = EventRecorder()
    EventBus(recorder).emit(ChoreRan(chore="expire", count=3))
    assert recorder.wait(ChoreRan, timeout=0) == ChoreRan(chore="expire", count=3)
    assert recorder.of(ChoreRan, count=4) == []
    threading.Timer(0.01, recorder, (ChoreRan(chore="expire", count=2),)).start()
    assert recorder.wait(ChoreRan, chore="expire", times=2).count == 2
    recorder.clear()
    with pytest.raises(AssertionError, match=r"ChoreRan\(chore='x'\) among what happened: nothing"):
        recorder.wait(ChoreRan, chore="x", timeout=0)
    with pytest.raises(TypeError, match="ChoreRan has no 'seconds'; it has chore, count"):
        recorder.wait(ChoreRan, seconds=1)
    recorder = EventRecorder()
    asyncio.get_running_loop().call_later(0.01, recorder, TasksClaimed(count=1, milliseconds=0.5))
    assert (await recorder.seen(TasksClaimed, count=1)).milliseconds == 0.5
    with pytest.raises(AssertionError, match=r"ChoreRan\(\) among what happened:\n  TasksClaimed"):
        await recorder.seen(ChoreRan, timeout=0.01)


async def test_the_first_true_value_is_returned_by_functions_and_coroutines() -> None:
    numbers = itertools.count()
    assert eventually(lambda: next(numbers) >= 3 and "three", every=0) == "three"
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0)

    def never() -> bool:
        raise AssertionError("2 of 3 are ready")

    with pytest.raises(AssertionError, match=r"nodes are ready: not true within 0\.01 s") as caught:
        eventually(never, timeout=0.01, every=0.001, message="nodes are ready")
    assert str(caught.value.__cause__) == "2 of 3 are ready"
    numbers = itertools.count()

    async def third() -> bool:
        return next(numbers) >= 3

    assert await eventually_async(third, every=0)
    assert await eventually_async(lambda: next(numbers) >= 6, every=0)
    with pytest.raises(AssertionError, match="not true within 0 s"):
        await eventually_async(lambda: False, timeout=0)


LIST_IMPORTS = """
import sys
import peerd.testing
heavy = {"sqlalchemy", "msgspec", "peerd.store", "peerd.work"} & set(sys.modules)
assert not heavy, heavy
for name in peerd.testing.__all__:
    found = getattr(peerd.testing, name)
    assert found.__doc__ and found.__name__ == name, name
assert set(peerd.testing.__all__) <= set(dir(peerd.testing))
ours = {"pytest", "_pytest", "hypothesis", "aiosqlite", "django", "pymysql", "psycopg"} & set(sys.modules)
assert not ours, ours
"""


def test_importing_it_loads_nothing_and_each_public_name_has_a_docstring_and_needs_nothing_but_peerd() -> None:
    ran = subprocess.run([sys.executable, "-c", LIST_IMPORTS], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
