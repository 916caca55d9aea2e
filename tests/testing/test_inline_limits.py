"""From a handler's declaration to a limit that holds: keys, limits and rates in a node inside the test."""

from __future__ import annotations

from peerd import Context, Queue
from peerd.testing import InlineNode

uploads = Queue("uploads")


@uploads.task(limit_key="customer")
async def receive(ctx: Context, customer: str, number: int) -> str:
    return f"{customer}{number}"


CALLS = [receive.with_args(customer, number) for customer in "ab" for number in range(4)]


def test_customers_take_turns_and_rates_and_stops_hold_by_the_clock() -> None:
    with InlineNode(uploads) as node:
        limits = node.client.limits
        node.client.enqueue_many(CALLS)
        done = [task.json for task in node.run_all()]
        order = [f"{given['customer']}{given['number']}" for given in done if isinstance(given, dict)]
        assert order == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]
        limits.set("uploads", each_key=True, rate="3/1m")
        limits.set("uploads", key="b", rate="1/1m")
        node.client.enqueue_many(CALLS)
        assert sorted(str(task.limit_key) for task in node.run_all()) == ["a", "a", "a", "b"]
        assert [limit.full_keys for limit in limits.list()] == [1, None]
        node.clock.advance("59s")
        assert node.run_all() == []
        node.clock.advance("1s")
        assert sorted(str(task.limit_key) for task in node.run_all()) == ["a", "b"]
        limits.set("uploads", running=0)
        node.client.enqueue("uploads")
        assert node.run_all() == []
        assert limits.remove("uploads")
        assert len(node.run_all()) == 1
