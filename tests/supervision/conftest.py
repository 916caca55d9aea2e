from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.supervision.nodes import ToyNode

Nodes = Callable[..., ToyNode]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Nodes]:
    """Make nodes of toys, and see to it that none leaves a process behind."""
    made: list[ToyNode] = []

    def make(*slots: dict[str, Any], **plan: Any) -> ToyNode:
        folder = tmp_path / f"node-{len(made)}"
        folder.mkdir()
        made.append(ToyNode(folder, *slots, **plan))
        return made[-1]

    yield make
    left = {one: one.clean_up() for one in made if one.master}
    said = "\n".join(one.said() for one in made if one.master)
    print(said)  # noqa: T201 - pytest shows it with a failure
    assert not any(left.values()), f"processes were left behind: {left}"
    assert "fault in the master" not in said
