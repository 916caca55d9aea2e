"""Files at risk, counts of copies, and why a folder is refused: what pages, metrics and alerts read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from peerd.store.files.checks import request_checks
from peerd.store.files.disks import (
    DiskReport,
    count_copies,
    read_counts,
    read_disks,
    remove_disk,
    report_disk,
    report_unusable,
    write_counts,
)
from peerd.store.files.risks import FileCount, RiskCount, count_only_on, count_risks, files_at_risk, parse_place
from peerd.store.schema.tables import disk_counts, disks, file_checks, file_copies, files
from tests.store.file_steps import Catalogue


def risk(number: int, danger: int, health: str | None, minutes: float) -> dict[str, Any]:
    now = datetime.now(UTC)
    since = now - timedelta(minutes=minutes)
    return {"file_id": number, "danger": danger, "health": health, "due_at": now, "created_at": since}


def test_files_at_risk_are_counted_and_listed_the_most_endangered_and_longest_first(catalogue: Catalogue) -> None:
    store, bucket = catalogue.store, catalogue.bucket()
    for number in range(1, 9):
        catalogue.put(bucket, f"{number}", catalogue.disk("a"), id=number)
    catalogue.store.run(lambda connection: connection.execute(sa.delete(file_checks)).close())
    rows = [
        risk(1, 2, "at-risk", 5),
        risk(2, 1, "at-risk", 5),
        risk(3, 1, "at-risk", 30),
        risk(4, 8, "lost", 60),
        risk(5, 8, "unreachable", 1),
        risk(6, 1, None, 9),
        risk(7, 9, "deleted", 90),
        risk(8, 2, "whole", 90),
    ]
    store.run(lambda connection: connection.execute(sa.insert(file_checks), rows).close())
    counts = store.read(count_risks)
    assert [(one.danger, one.health, one.files) for one in counts] == [
        (1, "at-risk", 2), (2, "at-risk", 1), (2, "whole", 1), (8, "unreachable", 1), (8, "lost", 1),
    ]  # fmt: skip
    store.run(request_checks, {3: 1})
    late = store.read(count_risks, ("at-risk", "lost"), longer_than=600.0)  # also 3, whose check is requested again
    assert [(one.danger, one.health, one.files) for one in late] == [(1, "at-risk", 1), (8, "lost", 1)]
    assert store.read(count_risks, most=1)[0] == RiskCount(danger=1, health="at-risk", files=1, at_least=True)
    whole = store.read(files_at_risk, None, None, 10)
    assert whole.counts == {"at-risk": 3, "lost": 1, "unreachable": 1, "unchecked": 1, "deleted": 1, "whole": 1}
    assert [file.id for file in store.read(files_at_risk, "unchecked", None, 10).files] == [6]
    found: list[int] = []
    after = None
    while True:
        page = store.read(files_at_risk, None, after, 2, counted=False)
        assert (len(page.files), page.counts) == (2, {})
        found += [file.id for file in page.files]
        if page.next_after is None:
            break
        after = parse_place(page.next_after)
    assert found == [3, 2, 1, 8, 5, 4]


def test_files_without_a_copy_elsewhere_are_counted_once_and_to_a_limit(catalogue: Catalogue) -> None:
    store, bucket = catalogue.store, catalogue.bucket()
    first, second, third = (catalogue.disk(name) for name in "abc")
    rows: list[dict[str, Any]] = []
    for name, others in {"alone": (), "twice": (second,), "readable": (third,), "bad": (third,)}.items():
        file = catalogue.put(bucket, name, first)
        for disk in others:
            state = "bad" if name == "bad" else "stored"
            rows.append({"file_id": file.id, "disk_id": disk, "size": 10, "state": state})
    store.run(lambda connection: connection.execute(sa.insert(file_copies), rows).close())
    deleted = catalogue.put(bucket, "deleted", first)
    catalogue.change(files, files.c.id == deleted.id, state="deleted", is_current=None)

    def count(on: list[int], others: list[int], most: int = 100) -> FileCount:
        return store.read(count_only_on, on, others, most)

    assert count([first, second], [third]) == FileCount(3)
    assert count([first], [second, third]) == FileCount(2)
    assert count([third], [first]) == FileCount(0)
    assert count([first, second], [third], most=2) == FileCount(1, at_least=True)
    assert str(FileCount(1, at_least=True)) == "1 or more files"


def test_copies_are_counted_by_disk_and_state_and_as_far_as_they_were_examined(catalogue: Catalogue) -> None:
    store, bucket = catalogue.store, catalogue.bucket()
    first, second = catalogue.disk("a"), catalogue.disk("b")
    made = [catalogue.put(bucket, f"{number}", first, size=10 + number) for number in range(3)]
    catalogue.set_copy(made[2].id, first, "bad")
    catalogue.change(disks, disks.c.id == first, scrubbed_to=made[0].id)
    for disk in (first, second):
        store.run(write_counts, disk, store.read(count_copies, disk))
    counts = store.read(read_counts)
    assert {state: (one.copies, one.bytes, one.examined) for state, one in counts[first].items()} == {
        "stored": (2, 21, 1), "bad": (1, 12, 0),
    }  # fmt: skip
    assert [(state, one.copies) for state, one in counts[second].items()] == [("stored", 0)]
    store.run(remove_disk, second)
    assert catalogue.count(disk_counts, disk_counts.c.disk_id == second) == 0


def test_why_a_folder_is_refused_is_written_to_its_disk_until_it_is_reported_again(catalogue: Catalogue) -> None:
    store, number = catalogue.store, catalogue.disk("a")
    node = catalogue.node("a")
    catalogue.silence(number, 11.0)
    store.run(report_unusable, node, "/srv/a", "no disk is mounted here")
    store.run(report_unusable, node, "/srv/other", "another folder")
    store.run(report_unusable, catalogue.node("b"), "/srv/a", "a folder of another node")
    found = store.read(read_disks)
    assert (found.disks[0].problem, found.grace) == ("no disk is mounted here", 900.0)
    identity = store.read(lambda c: c.execute(sa.select(disks.c.identity).where(disks.c.id == number)).scalar_one())
    report = DiskReport(identity=identity, path="/srv/a", size=10, free=5, reserve=0)
    store.run(report_disk, node, report, 60.0)
    found = store.read(read_disks)
    assert (found.disks[0].problem, found.grace) == (None, 60.0)
