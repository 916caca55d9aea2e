"""How deep is searched: a little in `make test`, always the same; in `make test-all` more, with new examples each time.

PEERD_FUZZ is a factor of the number of examples (e.g. 100), PEERD_FUZZ_SEED the seed of a run that failed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator
from typing import Any

import hypothesis
import pytest

from tests.support.tiers import is_quick
from tests.work.conftest import each_harness as each_harness  # noqa: PLC0414 - pytest finds fixtures by their names here

QUICK = 0.15
search = {"factor": float(os.environ.get("PEERD_FUZZ", "1")), "seed": int(os.environ.get("PEERD_FUZZ_SEED", "0"))}


def pytest_configure(config: pytest.Config) -> None:
    quick = is_quick(config)
    search["factor"] *= QUICK if quick else 1
    search["seed"] = search["seed"] or (1 if quick else secrets.randbits(32))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(
            ("again", f"PEERD_FUZZ_SEED={search['seed']} .venv/bin/python -m pytest '{item.nodeid}'")
        )
    return report


def searched(examples: int) -> Callable[[Any], Any]:
    settings = hypothesis.settings(
        max_examples=max(1, round(examples * search["factor"])),
        database=None,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
    )
    return lambda test: settings(hypothesis.seed(int(search["seed"]))(test))
