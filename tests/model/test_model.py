"""The store's operations do what the rules say, in any order, on each database."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from peerd.store.connection.database import Database
from tests.model.machine.store_machine import machine_on

EXAMPLES = {"sqlite": 150, "mysql": 60, "postgresql": 60}


@pytest.mark.timeout(600)  # a failure is made small before it is told
@pytest.mark.parametrize(
    "database",
    ["sqlite", pytest.param("mariadb", marks=pytest.mark.slow), pytest.param("postgresql", marks=pytest.mark.slow)],
    indirect=True,
)
def test_the_store_does_what_the_rules_say(database: Database) -> None:
    chosen = settings(max_examples=EXAMPLES[database.name], stateful_step_count=40, print_blob=True)
    run_state_machine_as_test(machine_on(database), settings=chosen)
