"""A client of a real node: its operations, its events, and what it sees of a replacement of the web process."""

from __future__ import annotations

import re

from peerd import Client
from peerd.supervision.control import control_client
from tests.cluster.cluster import Cluster


def test_a_client_of_a_node_works_and_its_events_go_on_when_the_process_is_replaced(cluster: Cluster) -> None:
    web = {"app": "peerd.web:app", "bind": "unix:web.sock", "grace": "1s"}
    node = cluster.node("one", workers={}, sections={"web.dashboard": web, "access": {"mask": ["card"]}}).up()
    [socket] = control_client.status(node.run_directory)["sockets"]
    with Client(f"unix:{socket['addresses'][0]}") as client:
        job = client.enqueue("video", name="transcode", unique="a")
        assert client.tasks.get(job.id) == cluster.client.tasks.get(job.id)
        paid = client.enqueue("video", body={"card": 4111})
        assert client.tasks.get(paid.id).json == {"card": "***"}, "the process has [access] of peerd.toml"
        events = client.events("task", tasks=[job.id])
        assert [next(events).type for _ in range(2)] == ["reset", "task"]
        reloaded = client.nodes.reload("one", ["dashboard", "agent"])
        assert reloaded.kinds == {"dashboard": "done", "agent": "done"}, "the process that took the request has ended"
        assert next(events).type == "reset", "of the new process, because the old one said bye"
        assert next(events).data["status"] == "pending"
        client.tasks.cancel(job.id)
        while (status := next(events).data.get("status")) != "canceled":
            assert status in {None, "pending"}
        node.stop()
        assert not re.search(r"aborted.*requests=[1-9]", node.log_text()), (
            "no stream was cut off by the end of the grace"
        )
