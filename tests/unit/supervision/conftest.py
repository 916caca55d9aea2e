"""`world`: a node without processes for the post. `node`: the same with an agent and three workers, open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peerd.supervision.control.channel import FrameChannel
from tests.unit.supervision.router_node import RouterNode


@pytest.fixture
def world() -> Iterator[RouterNode]:
    made = RouterNode()
    yield made
    for one in made.present:
        if isinstance(one.link, FrameChannel):
            one.link.close()
    for end in made.ends.values():
        end.close()


@pytest.fixture
def node(world: RouterNode) -> RouterNode:
    """An agent and three workers, one of them a web process; open."""
    for slot, role in (("agent", "agent"), ("video-1", "worker"), ("video-2", "worker"), ("site-1", "web")):
        world.begin(slot, role)
    world.router.open(world.now)
    return world
