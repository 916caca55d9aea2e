"""The model bites: it catches each of a list of deliberate faults of the store, within a bounded number of examples."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from peerd.store.connection.database import Database
from tests.model.machine.store_machine import machine_on
from tests.model.mutations import MUTATIONS
from tests.support.caches import clear_caches

pytestmark = pytest.mark.slow

SEEDS = 32
"""Short searches from several seeds find a rare fault sooner than a long one: all are caught within nine."""
EXAMPLES = 25
"""Of each seed; they are always the same ones, and none is made smaller."""


@pytest.fixture(autouse=True)
def fresh_statements() -> Iterator[None]:
    """The store caches its statements; those of a mutation must be neither made too early nor kept."""
    modules = [module for name, module in sys.modules.items() if name.startswith("peerd.store.")]
    clear_caches(*modules)
    yield
    clear_caches(*modules)


@pytest.mark.timeout(600)  # of a machine that others use too
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_faulty_store_is_caught(
    name: str, database: Database, monkeypatch: pytest.MonkeyPatch, record_line: Callable[[str, str], None]
) -> None:
    known, mutate = MUTATIONS[name]
    mutate(monkeypatch)
    found = next((number for number in dict.fromkeys((known, *range(SEEDS))) if is_caught(database, number)), None)
    assert found is not None, "the model does not differ from it"
    record_line("faults of the store, and the seed that caught each", f"{name:<50} seed {found}")


def is_caught(database: Database, number: int) -> bool:
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=40,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    caught = False
    try:
        run_state_machine_as_test(seed(number)(machine_on(database)), settings=chosen)
    except* AssertionError:
        caught = True
    return caught
