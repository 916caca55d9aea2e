"""How deep is searched: a little in each run, always the same; more with PEERD_FUZZ (a factor, e.g. 100)."""

from __future__ import annotations

import os

import hypothesis

from tests.work.conftest import each_harness as each_harness  # noqa: PLC0414 - pytest finds fixtures by their names here

DEEPER = int(os.environ.get("PEERD_FUZZ", "1"))


def searched(examples: int) -> hypothesis.settings:
    """Settings for so many examples in each run, more when more is asked for."""
    return hypothesis.settings(
        max_examples=examples * DEEPER,
        derandomize=DEEPER == 1,
        database=None,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
    )
