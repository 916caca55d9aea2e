"""What every rule stands on: the database and the model side by side, compared after each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from itertools import count
from typing import Any, ClassVar, Concatenate, Final, ParamSpec, TypeVar, cast

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple
from sqlalchemy.engine import Connection

from peerd.domain.errors import PeerdError
from peerd.domain.lifecycle import Status
from peerd.store import nodes, processes
from peerd.store.connection.database import Database
from peerd.store.outcomes import ClaimId
from peerd.store.take.claimer import Claimer
from tests.model.compare import Comparison, Mismatch
from tests.model.database_clock import DatabaseClock
from tests.model.reference import node_rules
from tests.model.reference.state import ModelProcess, ModelState, ModelTask
from tests.store.world import empty

P = ParamSpec("P")
T = TypeVar("T")

QUEUES: Final = ("a", "b")
NODES: Final = ("one", "two")
NEVER: Final = "never"
CLAIM_INDEXES: Final = st.integers(0, 7)
LIMITS: Final = st.sampled_from([1, 2, 500])


@dataclass(frozen=True)
class MadeClaim:
    """A claim that was made: whose, and the token that was chosen before it. It may be lost since long."""

    held: ClaimId
    process: ModelProcess
    token: int

    @property
    def key(self) -> tuple[int, int]:
        return self.held.id, self.held.lease


class AllRulesEnabled:
    def is_enabled(self, name: str) -> bool:
        return True


class ModelMachine(RuleBasedStateMachine):
    database: ClassVar[Database]

    processes = Bundle("processes")
    """Processes; some belong to a life of their node that is over."""

    def __init__(self) -> None:
        super().__init__()
        # Hypothesis would leave out about half of the rules in each example; here one leads to another, and with any
        # of them missing little would happen.
        self._rules_strategy.enabled_rules_strategy = st.just(cast("Any", AllRulesEnabled()))
        self.database.run(empty)
        self.pids = count(1)
        hand_writes_renew = self.database.name in ("mysql", "mariadb")
        self.state = ModelState(DatabaseClock(self.database).now, hand_writes_renew=hand_writes_renew)
        self.comparison = Comparison(self.database)
        self.made: list[MadeClaim] = []
        self.newest_id = 0

    @initialize(target=processes)
    def nodes_are_started(self) -> Any:
        for name in NODES:
            self.begin_life(name, replaces=None)
        return multiple(*(process for process in map(self.begin_process, NODES) if process is not None))

    def begin_life(self, name: str, replaces: str | None) -> None:
        incarnation = nodes.new_incarnation()
        node_id = self.run(nodes.register_incarnation, name, incarnation, replaces=replaces)
        wanted = node_rules.register(self.state, name, incarnation, replaces, node_id)
        self.same(node_id, wanted)

    def begin_process(self, name: str) -> ModelProcess | None:
        """A process of a node's present life; None when it has none."""
        node = self.state.nodes[name]
        if node.incarnation is None:
            return None
        about: dict[str, Any] = {"kind": "w", "slot": "w-1", "role": "worker", "pid": next(self.pids)}
        process_id = self.run(processes.register_process, node_id=node.id, incarnation=node.incarnation, **about)
        process = ModelProcess(id=process_id, node=name, node_id=node.id, incarnation=node.incarnation)
        self.state.processes[process_id] = process
        self.state.beats[process_id] = self.state.now
        return process

    def run(self, operation: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.database.run(operation, *args, **kwargs)

    def same(self, got: object, wanted: object) -> None:
        if got != wanted:
            raise Mismatch(f"the answer is {got!r}, and should be {wanted!r}")

    def both(self, real: Callable[[], T], by_the_rules: Callable[[], object]) -> T | None:
        """Do the same to both; each does it, or refuses it for the same reason."""
        got, wanted = result_or_error(real), result_or_error(by_the_rules)
        refusals = [type(one) if isinstance(one, PeerdError) else None for one in (got, wanted)]
        self.same(*refusals)
        return None if isinstance(got, PeerdError) else got

    def pick(self, index: int) -> MadeClaim:
        """A claim that was made: first those that hold their task, then those that lost it; the youngest first."""
        youngest = self.made[::-1]
        held = [claim for claim in youngest if self.state.held(*claim.key)]
        picked = [*held, *(claim for claim in youngest if claim not in held)][index % len(youngest)]
        note(f"# claim {picked.key} of process {picked.process.id}")
        return picked

    def done_among(self, possible: list[ModelTask], limit: int, found: dict[Any, Any]) -> list[ModelTask]:
        """Which of the tasks that a batch might have written it did; as many as it could."""
        done = [task for task in possible if (was := found.get(task.id)) is None or _place(was) != _place(task)]
        self.same(len(done), min(limit, len(possible)))
        return done

    @invariant()
    def every_row_is_as_the_rules_say(self) -> None:
        self.comparison.compare(self.state)


def only_if(condition: Callable[[Any], object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Leave a step out when there is nothing that it could be done to.

    This is no precondition of Hypothesis, because what is drawn next would depend on it; and so on what the database
    may choose as it likes: which rows a bounded batch takes, which of two moments in a millisecond is the earlier.
    """

    def decorated(step: Callable[..., None]) -> Callable[..., None]:
        @wraps(step)
        def step_or_not(machine: ModelMachine, **drawn: object) -> None:
            if condition(machine):
                step(machine, **drawn)

        return step_or_not

    return decorated


def has_task_in(*statuses: Status) -> Callable[[ModelMachine], bool]:
    return lambda machine: any(task.status in statuses for task in machine.state.tasks.values())


def claimer_of(process: ModelProcess, queues: tuple[str, ...], **more: Any) -> Claimer:
    about: dict[str, Any] = {"node_id": process.node_id, "incarnation": process.incarnation, **more}
    return Claimer(process_id=process.id, queues=queues, **about)


def keys(held: set[ClaimId]) -> set[tuple[int, int]]:
    return {(one.id, one.lease) for one in held}


def has_claimed(machine: ModelMachine) -> bool:
    return bool(machine.made)


def _place(task: ModelTask) -> tuple[Status, int | None]:
    return task.status, task.node_id


def result_or_error(operation: Callable[[], T]) -> T | PeerdError:
    try:
        return operation()
    except PeerdError as error:
        return error
