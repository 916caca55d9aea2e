"""docs/schedules.md: its configuration is one, and its statuses are all there are."""

from __future__ import annotations

import re
from pathlib import Path

from peerd.config import check
from peerd.domain.schedule import RunStatus

PAGE = (Path(__file__).parents[3] / "docs" / "schedules.md").read_text()


def test_the_examples_are_configurations(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "peerd.toml").write_text("\n".join(examples))
    found = check(tmp_path / "peerd.toml", {})
    assert found.problems == []
    assert found.settings is not None
    assert list(found.settings.schedules) == ["refresh", "report", "probe", "tide"]


def test_every_status_is_explained() -> None:
    chapter = PAGE.partition("## Outcomes")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \| ", chapter, re.MULTILINE)))) == set(RunStatus)
