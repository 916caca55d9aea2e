"""The hook for an error tracker on real nodes: each kind of error comes once, with its traceback."""

from __future__ import annotations

import json

import httpx
import pytest

from peerd.domain.lifecycle import Status
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, WORKER, Cluster


def errors(cluster: Cluster) -> list[dict[str, str]]:
    file = cluster.folder / "errors"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.slow
def test_each_kind_of_error_comes_once_with_its_traceback_and_hooks_that_fail_harm_nothing(cluster: Cluster) -> None:
    cluster.copy("tracked.py")
    workers = {
        "jobs": {**WORKER, "tasks": ["tracked:tracked", "tracked:refusing"], "timeout_grace": "300ms"},
        "round": {"worker": "tracked:Round", "update": "500ms"},
        "raising": cluster.worker("raising", "tracked"),
        "hanging": cluster.worker("hanging", "tracked"),
    }
    sections = {
        "errors": {"hook": "tracked:note"},
        "schedules.once": {"run": "tracked:scheduled", "interval": "1h", "immediate": True, "workers": ["jobs"]},
        "web.site": {"app": "tracked:app", "bind": "127.0.0.1:0"},
    }
    node = cluster.node("one", workers=workers, sections=sections).up()
    assert httpx.get(f"http://127.0.0.1:{node.port()}/page").status_code == 500
    client = cluster.client
    failing = {name: client.enqueue("tracked", name=name) for name in ("coroutine", "thread", "process", "late")}
    for job in failing.values():
        cluster.wait_until(job, Status.DEAD)
    again = client.enqueue("tracked", name="asks_for_another")
    cluster.done(again)
    for queue, name in (("refusing", "listens"), ("tracked", "does_the_rest"), ("tracked", "leaves_uncaught")):
        cluster.done(client.enqueue(queue, name=name))
    stuck = client.enqueue("tracked", name="stuck")
    cluster.wait_until(stuck, Status.DEAD)
    dies = client.enqueue("tracked", name="dies")
    cluster.wait_until(dies, Status.DEAD)
    finalizer = client.enqueue("tracked", name="leaves_a_finalizer")
    cluster.done(finalizer)
    eventually(lambda: any("finalizer" in one["error"] for one in errors(cluster)), timeout=WITHIN)
    for kind in ("raising", "hanging"):  # a hook that fails harms nothing
        for _ in range(5):
            cluster.wait_until(client.enqueue(kind, name="coroutine"), Status.DEAD)
        cluster.done(client.enqueue(kind, name="asks_for_another"))
    complaint = "the hook of [errors] failed"
    eventually(lambda: complaint in node.log_text(), timeout=WITHIN)
    eventually((cluster.folder / "hangs").exists, timeout=WITHIN)
    assert node.stop() == 0, "its end waits a moment only"
    [line] = [line for line in node.log_text().splitlines() if complaint in line and "slot=raising-1" in line]
    assert "the error tracker is away" in line

    found = errors(cluster)
    by_error = {one["error"]: one for one in found}
    for text, kind, what in (
        ("of a coroutine", "handler", "tracked/coroutine"),
        ("of a thread", "handler", "tracked/thread"),
        ("of a process", "handler", "tracked/process"),
        ("of a round", "loop", "Round"),
        ("of a schedule", "schedule", "once"),
        ("of a message handler", "message", "news"),
        ("of background work", "background", None),
        ("of a hook", "hook", "after_attempt"),
        ("of a careless thread", "uncaught", "thread careless"),
        ("of a finalizer", "uncaught", "a finalizer"),
        ("of a request", "request", "GET /page"),
    ):
        one = by_error[f"LookupError: {text}"]
        assert one["kind"] == kind, one
        assert what is None or one["what"] == what, one
        assert one["traceback"].rstrip().endswith(f"LookupError: {text}")
        assert one["node"] == "one"
        assert one["raised"] == (None if text == "of a process" else "LookupError")
    assert len(by_error) == len(found), f"each comes once: {found}"
    handler = by_error["LookupError: of a thread"]
    assert (handler["task_id"], handler["queue"], handler["handler"]) == (
        str(failing["thread"].id),
        "tracked",
        "thread",
    )
    assert (handler["attempt"], handler["will_retry"], handler["slot"]) == ("1", "False", "jobs-1")
    late = next(one for one in found if one.get("task_id") == str(failing["late"].id))
    assert "it ran longer than its timeout" in late["error"]
    of_stuck = next(one for one in found if one.get("task_id") == str(stuck.id))
    assert "in stuck" in of_stuck["traceback"]
    assert of_stuck["slot"] == "agent"
    crash = next(one for one in found if one["kind"] == "crash")
    assert crash["what"] == f"tasks {dies.id}"
    assert "exit status 9" in crash["error"]
    assert not [one for one in found if one.get("task_id") == str(again.id)], "asking for another attempt is no error"
    assert sorted(one["kind"] for one in found if one["kind"] == "process") == ["process"], found
