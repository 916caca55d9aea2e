"""A process of a node is killed at each step that it does on a disk; the next one goes on, and nothing is lost."""

from __future__ import annotations

import pytest

from tests.faults.storage import scenarios
from tests.faults.storage.crash_process import CrashProcess
from tests.storage.nodes import StorageCluster


def test_a_killed_put_leaves_the_file_that_was_there(cluster: StorageCluster, crash: CrashProcess) -> None:
    assert scenarios.kill_puts(cluster, crash) == []


def test_a_killed_put_in_parts_goes_on_or_leaves_the_file_that_was_there(
    cluster: StorageCluster, crash: CrashProcess
) -> None:
    assert scenarios.kill_uploads(cluster, crash) == []


@pytest.mark.parametrize("size", [scenarios.SMALL, scenarios.LARGE])
def test_a_killed_copy_is_made_by_the_next_try(cluster: StorageCluster, crash: CrashProcess, size: int) -> None:
    assert scenarios.kill_copies(cluster, crash, size=size) == []


def test_a_killed_removal_is_ended_by_the_next_try(cluster: StorageCluster, crash: CrashProcess) -> None:
    assert scenarios.kill_removals(cluster, crash) == []


def test_a_killed_verification_hides_no_damage(cluster: StorageCluster, crash: CrashProcess) -> None:
    assert scenarios.kill_verifications(cluster, crash) == []


def test_a_removal_that_stood_still_removes_no_copy_that_was_made_anew(cluster: StorageCluster) -> None:
    assert scenarios.remove_late(cluster) == []


def test_a_durable_put_that_is_refused_leaves_nothing(cluster: StorageCluster) -> None:
    assert scenarios.refuse_a_durable_put(cluster) == []


def test_a_put_that_is_cancelled_while_it_is_published_is_published_whole(cluster: StorageCluster) -> None:
    assert scenarios.cancel_a_put(cluster) == []


def test_tasks_for_a_disk_that_was_declared_lost_end(cluster: StorageCluster) -> None:
    assert scenarios.lose_a_disk_with_tasks(cluster) == []
