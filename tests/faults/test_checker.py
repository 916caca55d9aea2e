"""The checker accepts what may happen, and each of its rules catches what it is there for."""

from __future__ import annotations

import time
from typing import Final

import pytest

from tests.faults import versions
from tests.faults.checker import RULE_NAMES
from tests.faults.history_builder import HistoryBuilder

pytestmark = pytest.mark.slow

CRASH: Final = 'write crash error="its process died: killed by SIGKILL" | stage_due'
RESCUE: Final = 'write rescued error="its process died" checked_at=marked | stage_due'
TIMEOUT: Final = 'end cancelled | write timeout error="it ran longer" | stage_due | succeed'
STOPPED: Final = 'write released error="its process was stopped"'
UNKNOWN: Final = 'write unknown error="queue work has no handler of this name; other processes know it" | stage_due'
BY_STALE: Final = "end lease=1 process_id=1 pid=101"
STALE_RESULT: Final = """result='{"lease": 1, "pid": 101}'"""
DEATH: Final = (
    'write failure error="HandlerProcessDied: the handler\'s process was killed by SIGKILL before it answered"'
    " | stage_due | succeed"
)
RECYCLED: Final = 'set_process 1 cause="recycled (exit status 75): it has run 5 tasks (recycle_after = 5)"'
RUN: Final = "begin | end | complete"
OLD, NEW = "claim process=1 | begin code=old | end | complete", "claim process=2 | begin code=new | end | complete"
GROWS_BY: Final = """task grows | set_change details='{"key": "1", "by": 2}'"""
"""A task with the argument that the new code alone knows."""
POISON: Final = f"begin | end crashing | {CRASH}"
PUT_LATE: Final = "clients | put ttr=3 | reserve | wait 3 | change status=pending"

# -------------------------------------------------------------------- what may happen

FROZEN: Final = f"freeze_and_rescue | {BY_STALE} | end | complete"
"""The stale holder goes on when it thaws, and what it writes is refused."""
OF_TASKS: Final = {
    "a node is cut off": f"task long | claim process=4 | mark | begin"
    " | add_event fault kind='cut off' target=one effect=cut nodes=one lingers=3.0 | end | wait 7"
    f" | {RESCUE} | succeed process=3 | add_event healed kind='cut off' target=one",
    "an outage, after which is written what has ended meanwhile": "task long | start"
    " | add_event fault kind=outage target=all effect=cut everyone=1 | end"
    " | add_event unsure key='lost and never written' error=gone | wait 30"
    " | add_event healed kind=outage target=all | complete",
    "hands": "task long | start process=2 | hand cancel | write withdrawn error='by hand' | end cancelled lease=1"
    " | task long | start process=2 | hand retry | write retried error='by hand' | end cancelled lease=1"
    " | succeed process=3"
    " | task long | start process=2 | hand move | write moved error='by hand' | end cancelled lease=1"
    " | succeed process=3",
    "a move by SQL": "task long | start process=2 | hand 'move by SQL' | change status=pending lease=2"
    " | end cancelled lease=1 | succeed process=2",
    "a failure": "task failing | fail | stage_due | succeed",
    "a timeout": f"task stubborn | start | wait 1 | {TIMEOUT}",
    "a snooze": "task snoozing | start | end snoozed saw_cancel=1 | write snoozed | stage_due | succeed process=2",
    "a stop": "task long | start | end cancelled saw_cancel=1 | write released | succeed process=2",
    "ends on request": "task gives_up | start | end dead | write dead"
    " | task withdraws | start | end canceled | write canceled",
    "ends by finish_at": "task finish_at=+1 | wait 2 | delete | task long finish_at=+1 | start | wait 1"
    " | end cancelled | write canceled error='its finish_at came while it ran'",
    "children": "task parent key=77 | start | add_to_ledger 77/1/0 | task key=77/1/0 | ~ end | ~ complete | succeed",
    "a purge": "task | succeed | wait 3601 | delete",
    "an expiry after a kill": f"task finish_at=+2 | start process=3 | kill 3 | {CRASH} | wait 3 | delete",
    "a kill": f"task long | start | kill 1 | {CRASH} | succeed process=2",
}
ACCEPTED: Final = {
    **OF_TASKS,
    "a freeze": FROZEN,
    "poison that runs alone and ends dead": "task | start | task poison | claim 1 | begin | end crashing"
    f" | ~ write crash error='its process died' | ~ stage_due | {CRASH} | claim 2 | {POISON}"
    " | claim 3 | begin | end crashing | write crash error='its process died'"
    " | set_change new_status=dead | set_row status=dead | ~ succeed process=4",
    "a killed handler whose attempt ends soon": f"task forking | start | dying | wait 1 | {DEATH}",
    "recycled, and released before it began": f"task | claim 1 | {RECYCLED} | {STOPPED} | succeed process=2",
    "released before the code that does not know it": f"task comes | claim 1 | kill 1 | {STOPPED} | {NEW}",
    "killed before the code that does not know it": f"task comes | claim 1 | kill 1 | {CRASH} | {NEW}",
    "jobs that are reserved, released and deleted": "clients | put | reserve | delete_by"
    " | put answered=0 | reserve | delete_by"
    " | put | reserve | ask release | change status=pending | answer release released"
    " | reserve client=2 | delete_by client=2"
    " | put ttr=3 | reserve | wait 3 | change status=pending | reserve client=2"
    " | ask delete | answer delete | delete_by client=2",
    "a client that leaves at once, and another one in the same millisecond": "clients"
    " | add_event opened connection=client-3 server=101 | put | reserve"
    " | at_once | add_event closed connection=client-1 | at_once | change status=pending"
    " | at_once | claim 1 | add_event reserved task=1 connection=client-3"
    " | delete_by client=3",
    "a job that is ready, and deleted by whoever asks": f"{PUT_LATE} | delete_by",
}


def test_what_may_happen_is_accepted() -> None:
    reports = {name: HistoryBuilder().play(script).judge() for name, script in ACCEPTED.items()}
    assert {name: str(report) for name, report in reports.items() if report.problems} == {}


def test_all_of_it_in_one_run_is_accepted_and_counted() -> None:
    history = HistoryBuilder()
    for script in OF_TASKS.values():
        history.play(script)
    report = history.judge()
    assert report.problems == [], str(report)
    counted = "rescued crash deleted unsure timeout failure"
    assert [report.counts[name] for name in counted.split()] == [1, 2, 3, 1, 1, 1]
    others = ("by hand", "ended too late, and refused", "fault: kill worker", "fault: cut off")
    assert [report.counts[name] for name in others] == [4, 4, 2, 1]


def test_what_is_released_until_its_own_code_runs_it_is_accepted_and_counted() -> None:
    history = HistoryBuilder()
    codes = {row.id: versions.code_of(history.nodes[row.node_id]) for row in history.processes}
    assert (codes[1], codes[2]) == (versions.OLD, versions.NEW)
    history.play(
        f"{GROWS_BY} | claim 1 | {UNKNOWN} | {NEW} | task comes | claim 1 | {UNKNOWN} | claim 1 | {UNKNOWN} | {NEW}"
        f" | task goes | claim 2 | {UNKNOWN} | {OLD} | task grows | {OLD}"
    )
    report = history.judge()
    assert report.problems == [], str(report)
    assert report.counts["unknown"] == 4


def test_a_job_that_a_killed_process_held_may_be_reserved_by_others() -> None:
    report = (
        HistoryBuilder()
        .play(
            "clients | put | reserve | kill 1 | change status=pending | reserve client=2"
            " | add_event closed connection=client-1 | delete_by client=2"
        )
        .judge()
    )
    assert (report.problems, report.counts["jobs taken back"]) == ([], 1)


# -------------------------------------------------------------------- what each rule catches

VIOLATIONS: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    # lost
    ("task | succeed | add_event enqueued task=99 queue=work name=short key=99", {"lost": "never in the table"}),
    ("task | claim", {"lost": "it is working"}),
    ("task | start | end failure | write dead", {"lost": "ends as done, and this one is dead"}),
    ("task | succeed | forget rows 1", {"lost": "its row is gone"}),
    ("task | delete", {"lost": "deleted while it was pending"}),
    ("task | succeed | delete", {"lost": "deleted while it was done"}),
    # keys, transactions
    ("task key=same | succeed | task key=same | succeed", {"keys": "written 2 times"}),
    ("task | succeed | forget events 0", {"keys": "no enqueue has its key"}),
    ("task | task | ~ succeed | succeed | set_event 0 task=2", {"keys": "was acknowledged for the key 1"}),
    ("task parent | succeed | add_to_ledger 1/1/0", {"transaction": "no task has that key"}),
    ("task parent | succeed | task key=1/1/0 | succeed", {"transaction": "the ledger does not know"}),
    # lifecycle, leases
    ("task | change status=failure | stage_due | succeed", {"lifecycle": "no way from pending to failure"}),
    ("task failing | fail | stage_due | succeed process=2 | forget changes 3", {"lifecycle": "does not lead on from"}),
    ("task | succeed | set_row attempts=5", {"lifecycle": "not as its last change left it"}),
    (f"task | change status=working lease=2 process_id=1 | {RUN}", {"lease": "raised the lease by 2"}),
    (f"task | claim | change status=working process_id=2 | {RUN}", {"lease": ""}),
    (
        "task failing | fail | change status=pending lease=2 | succeed",
        {"lease": "no permitted operation raised its lease"},
    ),
    (f"task | claim node_id=2 worker_node_id=1 | {RUN}", {"lease": "may run on node 2 only"}),
    (f"task | claim start_at=+5 | {RUN}", {"lease": "before its start_at"}),
    ("task finish_at=+1 | wait 20 | succeed", {"lease": "after its finish_at"}),
    # stale writes
    (
        f"freeze_and_rescue | {BY_STALE} | change status=done {STALE_RESULT}",
        {"stale write": "with the result of claim 1"},
    ),
    (
        f"freeze_and_rescue | end | complete | {BY_STALE} | change {STALE_RESULT}",
        {"stale write": "its lease is 2, and its result is of 1", "lease": "were written although it stayed done"},
    ),
    (
        """freeze_and_rescue | end failure lease=1 process_id=1 pid=101 | end
        | write failure error='Planned: as ordered, at lease 1' | stage_due | succeed process=2""",
        {"stale write": "by claim 1", "not written": ""},
    ),
    ("task | start | complete", {"stale write": "its handler never ended"}),
    ("task | start | end snoozed | complete", {"stale write": "its handler ended as snoozed", "not written": ""}),
    ("task | start | complete | wait 1 | end", {"stale write": "before its handler ended", "overlap": ""}),
    (
        "task failing | fail | set_attempt process_id=3 | stage_due | succeed",
        {"stale write": "by process 3, and process 1 had claimed it", "attempts": ""},
    ),
    (f"task stubborn | start | {TIMEOUT}", {"stale write": "before its timeout"}),
    # overlap
    ("task | begin lease=7 process_id=2 | succeed", {"overlap": "which was never claimed"}),
    ("task | claim | begin | end | begin | end | complete", {"overlap": "ran 2 times"}),
    ("task | claim | begin process_id=2 | end process_id=2 | complete", {"overlap": "ran in process 2"}),
    ("task | begin lease=1 process_id=1 pid=101 | wait 1 | claim | end | complete", {"overlap": "before its claim"}),
    (
        f"task deaf | start | {STOPPED} | start process=2 | wait 1 | {BY_STALE} | end | complete",
        {"overlap": "after its claim had ended as released"},
    ),
    # attempts, outcomes
    ("task failing | fail | stage_due | succeed | forget attempts 0", {"attempts": "without a row in attempts"}),
    ("task | succeed | add_attempt 9 failure", {"attempts": "belongs to no claim"}),
    (
        """task | start | end | write failure | set_row status=done
        | set_change new_status=done details='{"lease": 1}'""",
        {"not written": "", "stale write": ""},
    ),
    ("task failing | fail | set_attempt number=2 | stage_due | succeed", {"attempts": "has the number 2"}),
    (
        """task snoozing | start | end snoozed | write snoozed | set_row attempts=1 | set_change new_attempts=1
        | stage_due | succeed""",
        {"attempts": "went from 0 to 1"},
    ),
    (f"task | start | end | {STOPPED} | succeed", {"not written": "ended as done, and its claim as released"}),
    (f"task | start | end | wait 60 | kill 1 | {CRASH} | succeed process=2", {"not written": "60.0 s without trouble"}),
    # rescue, crash, poison
    (f"task long | start | mark | wait 10 | {RESCUE} | succeed process=2", {"rescue": "6.0 s without trouble"}),
    (
        f"""task long | start | mark | add_event fault kind='kill server' target=server effect=cut everyone=1
        lingers=1.0 | wait 2 | add_event healed kind='kill server' target=server | wait 6
        | {RESCUE} | succeed process=2""",
        {"rescue": "without trouble"},
    ),
    (
        f"task long | start | kill 1 | wait 5 | mark | wait 3 | {RESCUE} | succeed process=2",
        {"rescue": "after its last touch"},
    ),
    (f"task long | start | {CRASH} | succeed process=2", {"crash": "nothing has hurt its process"}),
    (
        f"""task long | start | task long | start
        | add_event fault kind='kill master' target=two/master effect=dead pids=9
        | {CRASH} | wait 1 | ~ end | ~ complete | succeed process=2""",
        {"crash": "its process 1 went on"},
    ),
    (
        f"task long | start | kill 1 | {CRASH} | task long | start process=2 | ~ succeed process=2 | end | complete",
        {"poison": "in process 2 beside 2"},
    ),
    # death, recycle
    (f"task forking | start | dying | wait 30 | {DEATH}", {"death": "30.0 s without trouble later"}),
    (f"task long | start | {RECYCLED} ended_at=+0.01 | {STOPPED} | succeed process=2", {"recycle": ""}),
    (f"task long | start | {RECYCLED} ended_at=+0.01 | {CRASH} | succeed process=2", {"recycle": "", "crash": ""}),
    # versions
    (f"task comes | {OLD}", {"versions": "was of the old code, which does not know the task"}),
    (f"{GROWS_BY} | {OLD}", {"versions": "was of the old code, which does not know the task"}),
    (
        "task goes | claim process=2 | begin code=old | end | complete",
        {"versions": "ended as done in a process with the new code, which does not know it"},
    ),
    (
        "task comes | claim 1 | write dead error=\"queue work has no handler named 'comes'\"",
        {
            "versions": "its claim 1 ended as dead in a process with the old code, which does not know it",
            **dict.fromkeys(("stale write", "lost"), ""),
        },
    ),
    (
        f"task comes | claim 1 | write failure error=\"queue work has no handler named 'comes'\" | stage_due | {NEW}",
        {
            "versions": "its claim 1 ended as failure in a process with the old code, which does not know it",
            "stale write": "",
        },
    ),
    (f"task comes | claim 2 | {UNKNOWN} | {NEW}", {"versions": "although the new code knows it"}),
    (
        f"""task comes | claim 1 | write unknown | set_attempt number=1 | set_row attempts=1 | set_change new_attempts=1
        | stage_due | {NEW}""",
        {"attempts": "its attempts went from 0 to 1"},
    ),
    # jobs
    ("clients | add_event inserted task=99 key=job-99 connection=client-1", {"jobs lost": "never in the table"}),
    ("clients | put | reserve", {"jobs lost": "nobody has deleted it"}),
    ("clients | put | reserve | delete", {"jobs lost": "no client that held it has asked"}),
    (f"{PUT_LATE} | delete", {"jobs lost": "no client has asked"}),
    (f"{PUT_LATE} | reserve client=2 | ask delete | delete", {"jobs lost": "no client that held it has asked"}),
    (
        "clients | put | reserve | ask delete | answer delete deleted | wait 1 | delete",
        {"jobs lost": "was told that it is deleted"},
    ),
    (
        """clients | add_event opened connection=client-3 server=101 | put | reserve
        | add_event reserved task=1 connection=client-3 | delete_by""",
        {"jobs held": "was given to"},
    ),
    (
        "clients | put | reserve | change status=pending | wait 2 | reserve client=2 | delete_by client=2",
        {"jobs held": "too early"},
    ),
    *(
        (f"clients | put | reserve | kill 1 | {counted} | reserve client=2 | delete_by client=2", {"jobs counted": ""})
        for counted in (
            "change status=pending attempts=1",
            "count_crash | change status=pending",
            "change status=pending | add_attempt 1 crash",
        )
    ),
)
"""A history with one thing wrong; the rules that it breaks, and no others, with words of what they say."""


def test_each_rule_catches_what_it_is_there_for_and_no_other_one_does() -> None:
    wrong = []
    for script, expected in VIOLATIONS:
        problems = HistoryBuilder().play(script).judge().problems
        found = {rule: [one.text for one in problems if one.rule == rule] for rule in {one.rule for one in problems}}
        if found.keys() != expected.keys() or not all(
            any(expected[rule] in one for one in found[rule]) for rule in found
        ):
            wrong.append((script, expected, found))
    assert wrong == []
    assert {rule for _, expected in VIOLATIONS for rule in expected} == set(RULE_NAMES)


# -------------------------------------------------------------------- the checker itself


def test_twenty_thousand_tasks_are_judged_in_seconds() -> None:
    history = HistoryBuilder()
    for _ in range(20_000):
        history.succeed(history.task())
    began = time.process_time()
    assert history.judge().problems == []
    assert time.process_time() - began < 8


def test_a_problem_shows_the_lines_that_prove_it() -> None:
    [problem] = HistoryBuilder().play("task | claim").judge().problems
    assert "pending → working, lease 0 → 1" in str(problem)
    assert "enqueued" in str(problem)
