"""The dashboard and the API in a web process of a node, as strangers and slow clients meet it."""

from __future__ import annotations

import socket

import httpx
import pytest

from tests.cluster.cluster import Cluster, ClusterNode
from tests.cluster.conftest import MakeCluster
from tests.web.access_world import PASSWORD

JSON, FORM = "application/json", "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def shared(module_cluster: MakeCluster) -> Cluster:
    cluster = module_cluster("sqlite")
    cluster.up("one", sections={"web.dashboard": {"app": "peerd.web:app", "bind": "127.0.0.1:0"}})
    cluster.client.users.add("ann", "admin", PASSWORD)
    return cluster


def test_no_program_of_the_machine_chooses_the_address_that_it_comes_from(cluster: Cluster, node: ClusterNode) -> None:
    login = {"name": "ann", "password": "a wrong password"}
    forged = {"x-forwarded-for": "192.0.2.1"}
    httpx.post(f"http://127.0.0.1:{node.port('127.0.0.1')}/api/v1/session", json=login, headers=forged)
    assert cluster.client.audit.page(operation_name="session.open").items[0].address == "127.0.0.1"


def test_a_large_body_without_a_login_is_refused_before_it_arrives(node: ClusterNode) -> None:
    port = node.port("127.0.0.1")
    for path, kind in (("/api/v1/session", JSON), ("/login", FORM)):
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {kind}\r\n"
        chunk = f"5000\r\n{'x' * 0x5000}\r\n"
        for rest in ("content-length: 6000000\r\n\r\n", f"transfer-encoding: chunked\r\n\r\n{chunk}"):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
                stranger.sendall((head + rest).encode())
                answer = httpx.get(f"http://127.0.0.1:{port}/health/live")
                assert answer.status_code == 200, "others are served meanwhile"
                assert stranger.recv(12) == b"HTTP/1.1 413", (path, rest[:20])
    document = {"name": "n" * 200, "password": "\U0001f600" * 1000}
    longest = httpx.post(f"http://127.0.0.1:{port}/api/v1/session", json=document)
    assert longest.status_code == 401, "the longest name and password have room"
