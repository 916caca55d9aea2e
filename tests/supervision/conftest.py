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
    made: list[StubNode] = []

    def make(*slots: dict[str, Any], **plan: Any) -> StubNode:
        folder = tmp_path / f"node-{len(made)}"
        folder.mkdir()
        made.append(StubNode(folder, *slots, **plan))
        return made[-1]

    yield make
    left = {one: one.clean_up() for one in made if one.master}
    log_text = "\n".join(one.log_text() for one in made if one.master)
    print(log_text)  # noqa: T201 - pytest shows it with a failure
    assert not any(left.values()), f"processes were left behind: {left}"
    assert "fault in the master" not in log_text
