"""What a project's code does at the end of its node."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster.cluster import Cluster

HOOKS = Path(__file__).parent / "hooks.py"


def test_a_stop_awaits_the_asynchronous_hooks_of_all_processes_the_agents_last(cluster: Cluster) -> None:
    shutil.copy(HOOKS, cluster.folder / HOOKS.name)
    workers = {"periodic": "Periodic", "careless": "Careless", "rows": "Rows"}
    node = cluster.node(
        "one",
        workers={kind: {"worker": f"hooks:{name}", "update": "500ms"} for kind, name in workers.items()},
        sections={
            "agent": {"setup": "hooks:setup"},
            "web.site": {"app": "hooks:app", "bind": "127.0.0.1:0"},
        },
    ).up()
    assert "good evening" in node.log_text(), "the agent's own log"
    assert node.stop() == 0
    *others, last = (cluster.folder / "hooks").read_text().splitlines()
    assert (sorted(others), last) == (["periodic", "rows", "site"], "agent")
    assert "exit status 70: LookupError: there is nothing to close" in node.log_text()
    assert "OSError: the connection was closed already" in node.log_text()
