"""The store's operations do what the rules say, in any order, on each database."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from peerd.store.connection.database import Database
from tests.model.machine.store_machine import machine_on
from tests.support.servers import DATABASES

EXAMPLES = 60
STEPS = 40
NEW_EXAMPLES = {"sqlite": 120, "mysql": 30, "postgresql": 60}
SEED = "MODEL_SEED"


@pytest.mark.timeout(600)  # a failure is made small before it is told
def test_the_store_does_what_the_rules_say(database: Database) -> None:
    chosen = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, derandomize=True, print_blob=True)
    run_state_machine_as_test(machine_on(database), settings=chosen)


@pytest.mark.slow
@pytest.mark.every_database
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", DATABASES, indirect=True)
def test_the_store_does_what_the_rules_say_from_a_new_seed(database: Database, request: pytest.FixtureRequest) -> None:
    number = int(os.environ.get(SEED, random.randrange(10**9)))
    print(f"to repeat it: {SEED}={number} pytest '{request.node.nodeid}'")  # noqa: T201 - pytest shows it with a failure
    examples = NEW_EXAMPLES[database.name]
    chosen = settings(max_examples=examples, stateful_step_count=STEPS, database=None, print_blob=False)
    run_state_machine_as_test(seed(number)(machine_on(database)), settings=chosen)


def test_a_reservation_that_was_moved_by_hand_has_no_deadline_after_the_next_action(database: Database) -> None:
    def sequence(_: None) -> None:
        for leaves_deadline in (False, True):
            for action in ("bury", "snooze", "cancel", "move"):
                machine = machine_on(database)()
                machine.nodes_are_started()
                machine.initial_tasks(several=["a"])
                machine.take(process=next(iter(machine.state.processes.values())), index=0)
                machine.move_by_hand(index=0, node=None, leaves_deadline=leaves_deadline)
                machine.every_row_is_as_the_rules_say()
                [task] = machine.state.tasks.values()
                assert (task.deadline_at is not None) == leaves_deadline
                machine.intervene(what=action, index=0, node=None)
                machine.every_row_is_as_the_rules_say()

    settings(max_examples=1, database=None)(given(st.none())(sequence))()
