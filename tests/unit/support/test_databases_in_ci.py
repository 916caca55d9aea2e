from __future__ import annotations

from tests.support.servers import DATABASES, kind_in_ci


def test_a_test_has_the_same_database_with_each_of_its_parameters() -> None:
    nodeids = [f"tests/cluster/test_work.py::test_a[{kind}-{number}]" for kind in DATABASES for number in range(3)]
    assert len({kind_in_ci(nodeid) for nodeid in nodeids}) == 1


def test_the_tests_of_one_database_are_spread_over_all() -> None:
    chosen = [kind_in_ci(f"tests/cluster/test_work.py::test_{number}[sqlite]") for number in range(300)]
    assert all(chosen.count(kind) > 60 for kind in DATABASES)
