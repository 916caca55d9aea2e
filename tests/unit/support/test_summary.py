"""The summary counts the tests of each database that ran, and those skipped without a server."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.support.summary import Summary

Properties = list[tuple[str, object]]


def report(
    when: Literal["setup", "call", "teardown"],
    outcome: Literal["passed", "failed", "skipped"],
    properties: Properties,
) -> pytest.TestReport:
    return pytest.TestReport("a test", ("a.py", 1, "a"), {}, outcome, None, when, user_properties=properties)


def test_a_test_counts_once_on_each_database_that_it_really_had() -> None:
    summary = Summary(budget=60.0)
    both: Properties = [("database", "sqlite"), ("database", "mariadb")]
    for when in ("setup", "call", "teardown"):
        summary.pytest_runtest_logreport(report(when, "passed", both))
    summary.pytest_runtest_logreport(report("call", "failed", both[:1]))
    assert summary.ran == {"sqlite": 2, "mariadb": 1, "postgresql": 0}


def test_a_test_without_its_server_counts_as_skipped_and_not_as_run() -> None:
    summary = Summary(budget=60.0)
    summary.pytest_runtest_logreport(report("setup", "skipped", [("missing_server", "mariadb")]))
    summary.pytest_runtest_logreport(report("teardown", "passed", [("missing_server", "mariadb")]))
    assert (summary.ran["mariadb"], summary.missing["mariadb"]) == (0, 1)


def test_a_database_without_tests_is_shown_as_zero() -> None:
    assert set(Summary(budget=60.0).ran) == {"sqlite", "mariadb", "postgresql"}
