"""The agent of a real node: the user's code in it, shared connections, alerts, and what becomes of them if it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster

WORKERS = {
    "jobs": {**WORKER, "recycle_memory": "1TB"},
    "studio": {**WORKER, "tasks": "studio:studio", "max_attempts": 1},
}


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    """A node with `studio:setup` in its agent, which is not started yet."""
    cluster = module_cluster("sqlite")
    cluster.copy("studio.py")
    hook = {"command": ["sh", "-c", "cat >> alerts; echo >> alerts"], "at_most": "100 per 1s"}
    sections = {"agent": {"setup": "studio:setup"}, "agent.options": cluster.options, "alerts.file": hook}
    cluster.node("one", workers=WORKERS, manager={"inactive_after": "4s"}, sections=sections)
    return cluster


def gate(cluster: Cluster, name: str) -> Path:
    return Path(cluster.options["gates"]) / name


def alerts(cluster: Cluster) -> set[tuple[str, str]]:
    file = cluster.folder / "alerts"
    lines = file.read_text().splitlines() if file.exists() else []
    return {(one["alert"], one["text"]) for one in map(json.loads, filter(None, lines))}


@pytest.mark.slow
def test_a_setup_that_fails_ends_the_first_start_of_a_node_and_nothing_later(shared: Cluster) -> None:
    cluster, node = shared, shared.nodes[0]
    gate(cluster, "broken").touch()
    node.start()
    assert node.master is not None
    assert node.master.wait(WITHIN) == 3
    assert "[agent] setup studio:setup: ValueError: the studio is closed" in node.log_text()
    gate(cluster, "broken").unlink()

    node.up()
    gate(cluster, "broken").touch()
    agent = node.kill("agent")
    eventually(node.replaced("agent", agent), timeout=WITHIN, message=node.log_text)
    held = cluster.enqueue("gated")
    cluster.wait_for(held, "began")
    node.kill("jobs-1")  # the agent without its setup does its own duties
    cluster.wait_for(held, "began", times=2)
    cluster.open(held)
    cluster.done(held)
    waiting = cluster.client.enqueue("studio", name="call")
    gate(cluster, "broken").unlink()
    assert waiting.result(timeout=WITHIN) == node.pid("agent")
    assert [event["pid"] for event in cluster.notes(event="set up")] == [agent, node.pid("agent")]


def test_shared_connections_survive_the_agent_and_no_worker_is_touched(cluster: Cluster, node: ClusterNode) -> None:
    def seen() -> list[str]:
        return [event["value"] for event in cluster.notes(event="saw")]

    worker, agent = node.pid("studio-1"), node.pid("agent")
    gate(cluster, "news").write_text("first")
    follow = {"key": "news", "until": "last"}
    followers = [cluster.client.enqueue("studio", name="follow", body=follow) for _ in range(2)]
    eventually(lambda: seen() == ["first"] * 2, timeout=WITHIN)
    assert len(cluster.notes(event="follow")) == 1

    assert cluster.client.enqueue("studio", name="call").result(timeout=WITHIN) == agent
    eventually(lambda: seen()[2:] == ["called"] * 2, timeout=WITHIN)
    assert cluster.client.enqueue("studio", name="call_from_a_thread").result(timeout=WITHIN) == agent

    node.kill("agent")
    later = cluster.client.enqueue("studio", name="call")  # may be made while there is no agent
    gate(cluster, "news").write_text("while no agent ran")
    eventually(node.replaced("agent", agent), timeout=WITHIN, message=node.log_text)
    assert later.result(timeout=WITHIN) == node.pid("agent")
    gate(cluster, "news").write_text("last")
    for follower in followers:
        cluster.done(follower)
    saw = cluster.notes(event="saw")
    after = [event for event in saw if event["generation"] > saw[0]["generation"]]
    assert {event["missed"] for event in after[:2]} == {True}
    assert len(cluster.notes(event="follow")) == 2
    assert node.pid("studio-1") == worker == saw[-1]["pid"]


@pytest.mark.slow
def test_a_blocked_event_loop_of_the_agent_does_not_make_its_node_look_dead(
    cluster: Cluster, node: ClusterNode
) -> None:
    agent, before = node.pid("agent"), len(node.log_text())
    gate(cluster, "block").touch()
    eventually(lambda: cluster.notes(event="unblocked"), timeout=WITHIN)
    assert node.pid("agent") == agent
    assert "one fell silent" not in node.log_text()[before:]


@pytest.mark.slow
def test_a_worker_that_is_above_its_limit_of_memory_is_replaced_at_the_agents_request(
    cluster: Cluster, node: ClusterNode
) -> None:
    text = node.config.read_text()
    node.config.write_text(text.replace("1TB", "1MB"))
    node.reload(config_only=True)
    first = node.pid("jobs-1")
    eventually(node.replaced("jobs-1", first), timeout=WITHIN, message=node.log_text)
    assert "(recycle_memory = 1 MB)" in node.log_text()

    def was_above() -> bool:
        return (node.slot("jobs-1")["last_cause"] or {}).get("kind") == "memory-limit"

    eventually(was_above, timeout=WITHIN, message=node.log_text)
    node.config.write_text(text)
    node.reload(config_only=True)


def test_a_component_that_fails_is_started_again_alone_and_an_alert_is_sent(
    cluster: Cluster, node: ClusterNode
) -> None:
    agent = node.pid("agent")
    gate(cluster, "break").touch()
    eventually(lambda: len(cluster.notes(event="fragile began")) == 1, timeout=WITHIN, message=node.log_text)
    dead = cluster.client.enqueue("studio", name="fail")
    expected = {
        ("exception", "fragile failed: SystemExit: it is broken"),
        ("dead-tasks", f"task {dead.id} (studio/fail) is dead: ValueError: no such film"),
    }
    eventually(lambda: expected <= alerts(cluster), timeout=WITHIN, message=cluster.describe)
    assert node.pid("agent") == agent
    assert cluster.notes(event="set up") == []
    assert node.stop() == 0
    assert cluster.notes(event="stopped")[0]["pid"] == agent, "asynchronous hooks are awaited"
    assert "OSError: the connection was closed already" in node.log_text()
    assert "good evening" in node.log_text(), "the agent's own log"
