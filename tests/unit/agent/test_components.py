from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from peerd.agent import components as module
from peerd.agent.components import ComponentNameTaken, ComponentSupervisor
from peerd.runtime.observability.events import ComponentEnded, ComponentFailed, Event, EventBus
from peerd.testing import eventually_async
from tests.support.rows import rows


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
async def components(events: list[Event], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ComponentSupervisor]:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    components = ComponentSupervisor(EventBus(events.append))
    yield components
    await components.stop(components.names, within=5.0)


def failing(times: int, error: Callable[[], BaseException]) -> tuple[list[int], Callable[[], object]]:
    """Runs that fail so many times, and then run; the numbers of the runs."""
    starts: list[int] = []

    async def run() -> None:
        starts.append(len(starts))
        if len(starts) <= times:
            raise error()
        await asyncio.Event().wait()

    return starts, run


@rows("error", [ValueError, SystemExit, asyncio.CancelledError])
async def test_a_component_that_raises_is_restarted_and_nothing_else_ends(
    components: ComponentSupervisor, events: list[Event], error: type[BaseException]
) -> None:
    _, neighbour = failing(0, ValueError)
    starts, run = failing(3, lambda: error("again"))
    components.start("neighbour", neighbour)  # type: ignore[arg-type]
    components.start("failing", run)  # type: ignore[arg-type]
    await eventually_async(lambda: len(starts) == 4)
    states = {one["name"]: (one["state"], one["failures"], one["restarts"]) for one in components.to_json()}
    assert states == {"neighbour": ("running", 0, 0), "failing": ("running", 3, 3)}
    failures = [event for event in events if isinstance(event, ComponentFailed)]
    assert [event.failures for event in failures] == [1, 2, 3]
    assert failures[-1].again_in > 2 * failures[0].again_in
    await components.stop(components.names, within=5.0)
    events.clear()


async def test_a_component_that_returns_is_logged_and_not_restarted(
    components: ComponentSupervisor, events: list[Event]
) -> None:
    components.start("short", lambda: asyncio.sleep(0))
    await eventually_async(lambda: events == [ComponentEnded(component="short")])
    assert components.to_json()[0]["state"] == "ended"


async def test_components_are_stopped_in_reverse_order_and_their_names_are_free_again(
    components: ComponentSupervisor,
) -> None:
    ended = []

    async def until_the_end(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    for name in ("one", "two", "three"):
        components.start(name, lambda name=name: until_the_end(name))  # type: ignore[misc]
    with pytest.raises(ComponentNameTaken, match="two"):
        components.start("two", lambda: until_the_end("two"))
    await asyncio.sleep(0)
    await components.stop(["one", "three"], within=5.0)
    assert (ended, components.names) == (["three", "one"], ["two"])


async def test_a_component_that_ignores_its_cancellation_or_fails_in_its_end_does_not_block_the_stop(
    components: ComponentSupervisor, events: list[Event], capsys: pytest.CaptureFixture[str]
) -> None:
    let_go = asyncio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async def failing_at_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in its end")

    components.start("failing-at-end", failing_at_end)
    components.start("stubborn", stubborn)
    await asyncio.sleep(0)
    await components.stop(["failing-at-end"], within=5.0)
    assert (components.names, events) == (["stubborn"], []), "it is not restarted"
    assert "in its end" in capsys.readouterr().err
    await components.stop(["stubborn"], within=0.01)
    assert components.to_json()[0]["state"] == "stopped"
    let_go.set()
