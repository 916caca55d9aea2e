from __future__ import annotations

import re
from functools import partial

import pytest

from peerd.domain.schedule import RunStatus, Schedule
from peerd.operate.client import Client
from peerd.store import nodes, schedule_runs, schedules
from peerd.store.schedule_runs import NodeIdentity, ScheduleRun
from peerd.store.schedules import read_stored_schedules
from tests.cli.conftest import Peerd
from tests.unit.operate.claiming_process import ClaimingProcess

REFRESH = Schedule(name="refresh", run="studio:refresh", interval=60.0, args=["a"], jitter=5.0)
NIGHTLY = Schedule(name="nightly", queue="video", task="clean", cron="0 3 * * *", timezone="Europe/Berlin")


@pytest.fixture
def identity(client: Client, holder: ClaimingProcess) -> NodeIdentity:
    """A node that has two schedules."""
    node = client.database.read(nodes.find_node, "video-1")
    assert node is not None
    assert node.incarnation is not None
    identity = NodeIdentity(node.id, node.incarnation)
    for one in (REFRESH, NIGHTLY):
        client.database.run(schedules.declare_schedule, one, identity, 10.0)
    return identity


def carried_out(
    client: Client, identity: NodeIdentity, run: ScheduleRun, status: RunStatus, error: str | None = None
) -> None:
    [taken] = client.database.run(schedule_runs.claim_run, run, REFRESH, identity, [("video-1", 4242)])
    client.database.run(schedule_runs.end_run, taken.id, status, error)


def test_schedules_are_listed_with_their_next_tick_and_latest_run(
    peerd: Peerd, client: Client, identity: NodeIdentity
) -> None:
    carried_out(client, identity, client.schedules.run("refresh"), RunStatus.FAILED, "OSError: no disk")
    head, nightly, refresh = peerd("schedules", "list").lines
    assert head.split() == ["schedule", "state", "type", "when", "next", "last", "outcome", "runs"]
    assert re.fullmatch(
        r"nightly +on +cluster +0 3 \* \* \* Europe/Berlin +in \d+ (h|min|s) +– +– +task clean in video", nightly
    )
    assert re.fullmatch(r"refresh +on +cluster +every 1m +in (1 min|\d+ s) +\d s ago +failed +studio:refresh", refresh)


def test_a_schedule_is_shown_with_its_nodes_and_runs(peerd: Peerd, client: Client, identity: NodeIdentity) -> None:
    carried_out(client, identity, client.schedules.run("refresh"), RunStatus.DONE)
    output = peerd("schedules", "show", "refresh").out
    for words in ("every 1m", '["a"]', "jitter", "skip, after 1 min", "video-1", "as the cluster's", "hand", "done"):
        assert words in output, words
    assert "there is no schedule 'x'; known are: nightly, refresh" in peerd("schedules", "show", "x", status=1).err
    assert [run["status"] for run in peerd("schedules", "runs", "refresh", "--json").json] == ["done"]
    assert peerd("schedules", "runs", "nightly").lines == ["nothing has run yet"]
    client.database.run(nodes.deregister_node, "video-1", identity.incarnation)
    assert {state["state"] for state in peerd("schedules", "list", "--json").json} == {"nowhere"}


def test_a_schedule_is_disabled_and_enabled(peerd: Peerd, client: Client, identity: NodeIdentity) -> None:
    peerd("schedules", "disable", "refresh", "nightly")
    assert {state.state for state in client.schedules.list()} == {"disabled"}
    assert peerd("schedules", "enable", "refresh").lines == ["refresh is enabled"]
    assert client.schedules.get("refresh").state == "on"
    off = Schedule(name="refresh", run="studio:refresh", interval=60.0, enabled=False)
    client.database.run(schedules.declare_schedule, off, identity, 10.0)
    assert peerd("schedules", "enable", "refresh").lines == ["refresh is off in peerd.toml: enabled = false"]
    assert peerd("schedules", "disable", "x", status=1).err


def test_a_manual_run_is_requested_and_waited_for(
    peerd: Peerd, client: Client, identity: NodeIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = peerd("schedules", "run", "refresh", '{"b": 1}', "text", "--no-wait", "--json").json
    assert (requested["status"], requested["args"]) == ("waiting", '[{"b":1},"text"]')
    carry_out = partial(carried_out, client, identity)
    ends = [(RunStatus.DONE, None, 0), (RunStatus.FAILED, "OSError: no disk", 1)]
    for status, error, leaves_with in ends:

        def meanwhile(_: float, status: RunStatus = status, error: str | None = error) -> None:
            for run in client.schedules.runs("refresh", limit=1):
                carry_out(run, status, error)

        monkeypatch.setattr("time.sleep", meanwhile)
        output = peerd("schedules", "run", "refresh", status=leaves_with).lines
        assert re.fullmatch(rf"run \d+ of refresh: {status} in video-1{': ' + error if error else ''}", output[0])


def test_a_run_that_no_node_takes_is_reported(peerd: Peerd, client: Client, identity: NodeIdentity) -> None:
    output = peerd("schedules", "run", "refresh", "--timeout", "10ms", status=1).err
    before = len(client.schedules.runs("refresh"))
    assert "has not ended within 10ms: no node has taken it" in output
    assert "enqueues a task, whose body is its own" in peerd("schedules", "run", "nightly", "1", status=2).err
    for broken in ("{bad", "[1,", '"open'):
        assert f"the argument {broken} is not JSON" in peerd("schedules", "run", "refresh", broken, status=2).err
    assert len(client.schedules.runs("refresh")) == before


def test_schedules_are_created_and_deleted(peerd: Peerd, client: Client) -> None:
    fields = ("--queue", "jobs", "--task", "tidy", "--body", '{"depth": 3}', "--cron", "0 3 * * *")
    assert peerd("schedules", "create", "tidy", *fields).lines == ["tidy is created; the nodes have it within seconds"]
    [stored] = client.database.read(read_stored_schedules).schedules
    assert (stored.queue, stored.task, stored.body, stored.cron) == ("jobs", "tidy", '{"depth":3}', "0 3 * * *")
    assert "created at run time" in peerd("schedules", "create", "tidy", *fields, status=1).err
    assert "is not JSON" in peerd("schedules", "create", "a", "--queue", "q", "--body", "{", status=2).err
    assert "when does it tick?" in peerd("schedules", "create", "a", "--queue", "q", status=2).err
    assert peerd("schedules", "delete", "tidy", "--json").json == {"deleted": ["tidy"]}
    assert "there is no schedule" in peerd("schedules", "delete", "tidy", status=1).err
