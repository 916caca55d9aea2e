from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.supervision.nodes import StubNode

Nodes = Callable[..., StubNode]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Nodes]:
    """Make nodes of stub services, and check that none leaves a process behind."""
    yield from _nodes(tmp_path)


@pytest.fixture(scope="module")
def module_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """The same for a module, whose tests look at a node, or let it be as it was."""
    yield from _nodes(tmp_path_factory.mktemp("nodes"))


def _nodes(parent: Path) -> Iterator[Nodes]:
    made: list[StubNode] = []

    def make(*slots: dict[str, Any], **plan: Any) -> StubNode:
        folder = parent / f"node-{len(made)}"
        folder.mkdir()
        made.append(StubNode(folder, *slots, **plan))
        return made[-1]

    yield make
    left = {one: one.clean_up() for one in made if one.master}
    log_text = "\n".join(one.log_text() for one in made if one.master)
    print(log_text)  # noqa: T201 - pytest shows it with a failure
    assert not any(left.values()), f"processes were left behind: {left}"
    assert "fault in the master" not in log_text
