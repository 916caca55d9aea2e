"""In `make test`, Hypothesis takes a few examples, and always the same ones; `make test-all` searches for new ones."""

from __future__ import annotations

import hypothesis
import pytest

from tests.support.tiers import is_quick

FEW = 20


def pytest_configure(config: pytest.Config) -> None:
    if is_quick(config):
        usual = hypothesis.settings.get_profile("peerd")
        hypothesis.settings.register_profile("quick", usual, max_examples=FEW, derandomize=True, database=None)
        hypothesis.settings.load_profile("quick")


def examples(times: int) -> hypothesis.settings:
    """So many times as many examples as a test has otherwise."""
    return hypothesis.settings(max_examples=times * hypothesis.settings().max_examples)
