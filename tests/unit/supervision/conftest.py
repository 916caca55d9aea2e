"""`router_node`: a router of a node without processes. `node`: the same, open, with an agent and three workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peerd.supervision.control.channel import FrameChannel
from tests.unit.supervision.router_node import RouterNode


@pytest.fixture
def router_node() -> Iterator[RouterNode]:
    made = RouterNode()
    yield made
    for one in made.present:
        if isinstance(one.link, FrameChannel):
            one.link.close()
    for end in made.ends.values():
        end.close()


@pytest.fixture
def node(router_node: RouterNode) -> RouterNode:
    """An agent and three workers, one of them a web process; open."""
    for slot, role in (("agent", "agent"), ("video-1", "worker"), ("video-2", "worker"), ("site-1", "web")):
        router_node.begin(slot, role)
    router_node.router.open(router_node.now)
    return router_node
