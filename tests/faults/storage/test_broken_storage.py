"""The audit passes the product, and catches each variant of it that lacks a guarantee."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.storage import scenarios
from tests.faults.storage.broken_storage import VARIANTS
from tests.faults.storage.crash_process import CrashProcess
from tests.storage.nodes import StorageCluster

pytestmark = pytest.mark.slow
SCENARIOS: dict[str, Callable[[StorageCluster], list[str]]] = {
    "copy without verification": scenarios.damage_one_of_three,
    "removal without a look at the others": scenarios.damage_a_disk_that_is_away,
    "tombstones first": scenarios.delete_while_a_node_is_away,
    "verification by time": scenarios.damage_unseen,
    "reading without verification": scenarios.read_damaged,
    "acknowledged too early": scenarios.lose_the_first_disk,
}
"""By the variant, what shows it."""


@pytest.mark.parametrize("variant", SCENARIOS)
def test_the_product_passes(cluster: StorageCluster, variant: str) -> None:
    assert SCENARIOS[variant](cluster) == []


@pytest.mark.parametrize("variant", SCENARIOS)
def test_a_broken_variant_is_caught(cluster: StorageCluster, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    VARIANTS[variant](monkeypatch.setattr)
    problems = SCENARIOS[variant](cluster)
    print("\n".join(problems))  # noqa: T201 - pytest shows it with a failure
    assert problems


def test_a_row_before_its_file_is_caught(cluster: StorageCluster, crash: CrashProcess) -> None:
    problems = scenarios.kill_puts(cluster, crash, "row before file", every=4)
    assert any("IS LOST" in problem for problem in problems), problems


def test_each_variant_has_a_test() -> None:
    assert {*SCENARIOS, "row before file"} == set(VARIANTS)
