"""Gateway processes that a reload has replaced or removed, on a real node."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress

from peerd.supervision.control import control_client
from peerd.testing import eventually
from tests.cluster.cluster import WITHIN, Cluster, ClusterNode
from tests.cluster.test_gateway import TUBES, connect, gateway_node
from tests.gateway.beanstalk_connection import BeanstalkConnection


def reload(node: ClusterNode) -> None:
    """Reload all kinds, and wait until that is over."""
    command = {"command": "reload", "kinds": None, "config_only": True}
    number = control_client.send_command(node.run_directory, command)["number"]

    def is_over() -> bool:
        [found] = [one for one in control_client.status(node.run_directory)["reloads"] if one["number"] == number]
        assert found["progress"] != "abandoned", found
        return bool(found["progress"] == "done")

    eventually(is_over, timeout=WITHIN, message=node.log_text)


def rewrite(node: ClusterNode, before: str, after: str) -> None:
    """Change a line of its configuration."""
    text = node.config.read_text()
    assert before in text
    node.config.write_text(text.replace(before, after))


def connect_to(node: ClusterNode, pid: int) -> BeanstalkConnection:
    """Connect to one process: after a reload, the former one accepts until it has read that it shall stop."""

    def connected() -> BeanstalkConnection:
        client = connect(node)
        if (reached := int(client.statistics()["pid"])) != pid:
            client.close()
            raise AssertionError(f"process {reached} accepted, not {pid}")
        return client

    return eventually(connected, timeout=WITHIN, message=node.log_text)


def test_a_gateway_that_was_removed_gives_up_its_port_and_serves_its_clients_to_their_end(cluster: Cluster) -> None:
    node = gateway_node(cluster, "one").up()
    pid = node.pid("tubes-1")
    with connect(node) as client:
        [listening] = control_client.status(node.run_directory)["sockets"]
        port = int(listening["addresses"][0].rpartition(":")[2])
        job = client.put()
        assert client.reserve() == job
        rewrite(node, f"[{TUBES}]", f"[{TUBES}]\nenabled = false")
        reload(node)

        def is_refused() -> bool:
            with suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
                return False
            return True

        eventually(is_refused, timeout=WITHIN, message=node.log_text)
        assert int(client.statistics()["pid"]) == pid
        assert client.ask(b"delete %d\r\n" % job) == b"DELETED\r\n"
    eventually(lambda: pid not in cluster.processes(), timeout=WITHIN, message=node.log_text)


def test_the_status_shows_each_process_that_still_serves_clients_after_reloads(cluster: Cluster) -> None:
    node = gateway_node(cluster, "one", backlog=10).up()
    with ExitStack() as clients:
        former = []
        for backlog in (11, 12):
            former.append(node.pid("tubes-1"))
            clients.enter_context(connect_to(node, former[-1])).put()
            rewrite(node, f"backlog = {backlog - 1}", f"backlog = {backlog}")
            reload(node)
        command = [sys.executable, "-m", "peerd", "status", "--config", str(node.config)]

        def notes() -> str:
            wide = os.environ | {"COLUMNS": "300"}
            return subprocess.run(command, capture_output=True, text=True, check=True, env=wide).stdout

        both = [f"process {pid} of generation {number} is leaving" for number, pid in enumerate(former, 1)]
        eventually(lambda: all(one in notes() for one in both), timeout=WITHIN, message=notes)
        eventually(lambda: notes().count("still serves 1 client") == 2, timeout=WITHIN, message=notes)
        as_json = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True).stdout)
        [slot] = [slot for slot in as_json["here"]["slots"] if slot["name"] == "tubes-1"]
        assert [(one["pid"], one["in_flight"]) for one in slot["leaving"]] == [(pid, 1) for pid in former]
    eventually(lambda: not set(former) & set(cluster.processes()), timeout=WITHIN, message=node.log_text)
