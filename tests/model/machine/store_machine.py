"""All rules together."""

from __future__ import annotations

from peerd.store.connection.database import Database
from tests.model.machine.chore_steps import ChoreSteps
from tests.model.machine.job_steps import JobSteps
from tests.model.machine.node_steps import NodeSteps
from tests.model.machine.process_steps import ProcessSteps
from tests.model.machine.user_steps import UserSteps


class StoreMachine(UserSteps, ProcessSteps, JobSteps, ChoreSteps, NodeSteps):
    """Whatever can happen to a table."""


def machine_on(database: Database) -> type[StoreMachine]:
    return type("Machine", (StoreMachine,), {"database": database})
