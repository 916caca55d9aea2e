"""A process of a node is killed at each step that it does on a disk; the next one goes on, and nothing is lost."""

from __future__ import annotations

import pytest

from tests.faults.storage import scenarios
from tests.faults.storage.crash_process import CrashProcess
from tests.storage.nodes import StorageCluster


def test_a_killed_put_leaves_the_file_that_was_there(cluster: StorageCluster, crash: CrashProcess) -> None:
    assert scenarios.kill_puts(cluster, crash) == []


@pytest.mark.parametrize("size", [scenarios.SMALL, scenarios.LARGE])
def test_a_killed_copy_is_made_by_the_next_try(cluster: StorageCluster, crash: CrashProcess, size: int) -> None:
    assert scenarios.kill_copies(cluster, crash, size=size) == []


def test_a_killed_removal_is_ended_by_the_next_try(cluster: StorageCluster, crash: CrashProcess) -> None:
    assert scenarios.kill_removals(cluster, crash) == []


def test_a_killed_verification_hides_no_damage(cluster: StorageCluster, crash: CrashProcess) -> None:
    assert scenarios.kill_verifications(cluster, crash) == []
