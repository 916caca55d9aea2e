"""A cluster of real loops in virtual time: what must hold, holds for every order of calls and faults that we draw."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulation.backing_database import BackingDatabase, open_backing_database
from tests.simulation.mutations import MUTATIONS, Mutation, mutated
from tests.simulation.plan import draw_plan
from tests.simulation.runner import SimulationResult, find_violation, report, run

SEEDS = 360
"""The same in each run; `make simulate` draws others, as many as there is time for."""
PARTS = 8
FEW = 15
BROKE_A_RULE = (
    6264,  # the only manager is frozen, and no other deletes a task whose finish_at has passed: it need not start
    15431,  # of two tasks that are touched together, one is locked and the other was retried: it is lost
)
SEEDS_PER_MUTATION = 300


@pytest.fixture(scope="module")
def backing_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackingDatabase]:
    with open_backing_database(tmp_path_factory.mktemp("simulation")) as made:
        yield made


def find_mutation(mutation: Mutation, backing_database: BackingDatabase) -> SimulationResult:
    outcome = find_violation((mutation.seed, *range(SEEDS_PER_MUTATION)), backing_database, focus=mutation.focus)
    assert outcome is not None, f"no rule detects that {mutation.name}"
    return outcome


def test_nothing_is_lost_and_each_claim_has_one_holder_whatever_dies(backing_database: BackingDatabase) -> None:
    outcome = find_violation((*BROKE_A_RULE, *range(FEW)), backing_database)
    assert outcome is None, report(outcome, backing_database)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_hundreds_of_orders_of_calls_and_faults_break_no_rule(part: int, backing_database: BackingDatabase) -> None:
    outcome = find_violation(range(FEW + part, SEEDS, PARTS), backing_database)
    assert outcome is None, report(outcome, backing_database)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_every_mutation_is_caught(
    mutation: Mutation, backing_database: BackingDatabase, record_line: Callable[[str, str], None]
) -> None:
    with mutated(mutation):
        outcome = find_mutation(mutation, backing_database)
    line = f"{mutation.name:<55} seed {outcome.plan.seed}: {outcome.rule}"
    record_line("broken variants, and the seed that caught each", line)


@pytest.mark.slow
def test_a_seed_replays_exactly_in_another_process(backing_database: BackingDatabase) -> None:
    here = run(draw_plan(45), backing_database).history.digest()
    command, root = [sys.executable, "-m", "tests.simulation", "45"], Path(__file__).parents[2]
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    elsewhere = subprocess.check_output(command, env=environment, cwd=root, text=True)
    assert elsewhere.splitlines()[-1] == f"seed 45 holds; {here}"


@pytest.mark.slow
def test_a_failing_run_is_made_small(backing_database: BackingDatabase) -> None:
    mutation = next(one for one in MUTATIONS if one.name == "outcomes are written regardless of the status")
    with mutated(mutation):
        outcome = find_mutation(mutation, backing_database)
        text = report(outcome, backing_database)
    assert outcome.rule is not None
    assert outcome.rule in text
    assert text.count("    at ") < len(outcome.plan.events)
