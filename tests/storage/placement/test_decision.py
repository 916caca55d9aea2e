"""What a file needs, decided from its copies and the disks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from peerd.domain.files import Copy, CopyState, Disk, DiskKind, DiskState, FileClass, FileNeeds
from peerd.storage.placement.brake import GRACE, view_disks
from peerd.storage.placement.decision import VERIFIED_BEFORE_REMOVAL, Decision, FileHealth, Settled, counts, decide
from tests.support.few_examples import examples

STORED, PLANNED, BAD, REMOVING = CopyState.STORED, CopyState.PLANNED, CopyState.BAD, CopyState.REMOVING
ROOM = 1_000
AWAY = GRACE + 1
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def disk(number: int, **more: object) -> Disk:
    values: dict[str, object] = {"id": number, "node": f"node-{number}", "free": ROOM, **more}
    return Disk(**values)  # type: ignore[arg-type]


def decision_of(disks: list[Disk], *copies: Copy, **needs: object) -> Decision:
    values: dict[str, object] = {"size": 10, "copies": 2, **needs}
    return decide(FileNeeds(**values), copies, view_disks(disks), Random(1))  # type: ignore[arg-type]


def stored(*numbers: int) -> list[Copy]:
    return [Copy(number, STORED) for number in numbers]


def object_disk(number: int, **more: object) -> Disk:
    return disk(number, **{"node": None, "kind": DiskKind.S3, "zone": f"object store {number}", **more})


THREE = [disk(1), disk(2), disk(3)]
WHOLE, AT_RISK = FileHealth.WHOLE, FileHealth.AT_RISK
SETTLED: dict[str, object] = {"is_settled": True}
UNUSABLE: tuple[dict[str, object], ...] = (
    {"state": DiskState.READONLY},
    {"state": DiskState.DRAIN},
    {"state": DiskState.LOST},
    {"problem": "it is read-only"},
    {"silent_for": 60.0},
    {"free": 9},
)


def assert_decided(*rows: tuple[str, list[Disk], list[Copy], Mapping[str, object]], **needs: object) -> None:
    """Each row: why, the disks, the copies, and what of the decision is expected."""
    for why, disks, copies, expected in rows:
        decision = decision_of(disks, *copies, **needs)
        assert {name: getattr(decision, name) for name in expected} == expected, why


def test_a_file_needs_nothing_when_it_has_its_copies_on_different_nodes() -> None:
    double = [disk(1), disk(2, node="node-1"), disk(3)]
    alone = [disk(1), disk(2, node="node-1"), disk(3, free=5)]
    blocked = "no other node has a disk with room for 1 more"
    assert decision_of(THREE, *stored(1, 3)) == Decision(health=WHOLE, good=2, is_settled=True)
    assert decision_of(THREE, *stored(1), Copy(3, PLANNED)) == Decision(health=AT_RISK, good=1), "it is waited for"
    assert_decided(
        ("copies of a node are one", double, stored(1, 2), {"health": AT_RISK, "good": 1, "copy_to": (3,)}),
        ("one of the double ones goes", double, stored(1, 2, 3), {"health": WHOLE, "remove_from": (1,)}),
        ("there is no node", alone, stored(1), {"health": AT_RISK, "copy_to": (), "blocked": blocked}),
        ("others are away", [disk(1), disk(2, silent_for=60.0)], stored(1), {"blocked": f"{blocked}; 1 is away"}),
        *(
            (f"{one} takes no copy", [disk(1), disk(2, **one)], stored(1), {"health": AT_RISK, "copy_to": ()})
            for one in UNUSABLE
        ),
    )
    fullest = [disk(1, free=500), disk(2, free=100), disk(3, free=300)]
    assert_decided(("the surplus leaves the fullest disk", fullest, stored(1, 2, 3), {"remove_from": (2,)}))


def test_a_silent_disk_counts_for_its_grace_period_and_when_it_is_back_only_after_verification() -> None:
    for silence, expected in ((GRACE, ()), (AWAY, (3,))):
        disks = [disk(1), disk(2, silent_for=silence), disk(3)]
        assert_decided(("the disk may come back", disks, stored(1, 2), {"copy_to": expected, "forget": ()}))
    back = [disk(1), disk(2, verified_since=MOMENT, free=1), disk(3)]
    before, after = Copy(2, STORED, MOMENT - timedelta(hours=1)), Copy(2, STORED, MOMENT)
    waits = {"health": WHOLE, "remove_from": (), "is_settled": False}
    assert_decided(
        ("it is not verified", back, [*stored(1), before, *stored(3)], waits),
        ("the surplus goes", back, [*stored(1), after, *stored(3)], {"remove_from": (2,)}),
    )


def test_while_too_many_nodes_are_silent_nothing_is_repaired_but_new_files_get_their_copies() -> None:
    silent = [disk(1), disk(2, silent_for=AWAY), disk(3, silent_for=AWAY), disk(4)]
    one_lost = [disk(1), disk(2, silent_for=AWAY), disk(3, state=DiskState.LOST), disk(4)]
    assert_decided(
        ("nothing is repaired", silent, stored(1, 2), SETTLED),
        ("it is new", silent, stored(1), {"copy_to": (4,)}),
        ("an operator has decided", one_lost, stored(1, 2), {"copy_to": (4,)}),
    )


def test_copies_of_lost_and_drained_disks_and_bad_copies_are_replaced_first_and_given_up_last() -> None:
    lost, drained = disk(2, state=DiskState.LOST), [disk(1), disk(2, state=DiskState.DRAIN), disk(3)]
    away = [disk(1, silent_for=AWAY), lost, disk(3)]
    nothing = {"health": FileHealth.UNREACHABLE, "copy_to": (), "forget": ()}
    bad = [*stored(1), Copy(2, BAD)]
    assert_decided(
        ("another copy is planned", [disk(1), lost, disk(3)], stored(1, 2), {"copy_to": (3,), "forget": (2,)}),
        ("the last hope is not gone", away, stored(1, 2), nothing),
        ("the last hope is gone", [lost, disk(3)], stored(2), {"health": FileHealth.LOST, "forget": (2,)}),
        ("one that was planned", [disk(1), lost], [Copy(1, BAD), Copy(2, PLANNED)], {"forget": (2,), "copy_to": ()}),
        ("not one to hope for", [disk(1), lost], [Copy(1, BAD), *stored(2)], {"forget": ()}),
        ("a bad one is made anew elsewhere", THREE, bad, {"copy_to": (3,), "remove_from": ()}),
        ("or on its own disk", THREE[:2], bad, {"copy_to": (2,)}),
        ("also if a node with one has room", [*THREE[:2], disk(4, node="node-1")], bad, {"copy_to": (2,)}),
        ("and removed last", THREE, [*bad, *stored(3)], {"remove_from": (2,)}),
        ("a drained one is a source", drained, stored(1, 2), {"good": 2, "copy_to": (3,), "remove_from": ()}),
        ("the other is not there", drained, [*stored(1, 2), Copy(3, PLANNED)], {"remove_from": ()}),
        ("the other is there", drained, stored(1, 2, 3), {"remove_from": (2,)}),
    )


def test_copies_are_on_as_many_zones_as_wanted_as_far_as_there_are_so_many() -> None:
    zones = [disk(1, zone="x"), disk(2, zone="x"), disk(3, zone="y")]
    with_store = [*zones[:2], object_disk(4)]
    bad_one = [*stored(1, 2), Copy(3, BAD)]
    risk = {"health": AT_RISK, "copy_to": (3,), "remove_from": ()}
    assert_decided(
        ("another zone is chosen", zones, stored(1), {"copy_to": (3,)}),
        ("it has its copies, but in one zone", zones, stored(1, 2), risk),
        ("the other zone has a bad one", [*zones, disk(5, zone="x")], bad_one, risk),
        ("trimming looks at zones", zones, stored(1, 2, 3), {"remove_from": (1,)}),
        ("there is one zone", zones[:2], stored(1, 2), SETTLED),
        ("an object store is one", with_store, stored(1, 2), {"health": AT_RISK, "copy_to": (4,)}),
        ("it has one there", with_store, stored(1, 4), {"health": WHOLE, "good": 2, "is_settled": True}),
        zones=2,
    )


def test_a_good_copy_is_removed_only_when_those_that_stay_were_verified_lately() -> None:
    disks = [disk(1, free=500), disk(2, free=100), disk(3, free=300), disk(4, state=DiskState.DRAIN)]
    lately, before = MOMENT - VERIFIED_BEFORE_REMOVAL, MOMENT - VERIFIED_BEFORE_REMOVAL - timedelta(seconds=1)
    for surplus, verified_at in product((2, 4), (lately, before, None)):
        copies = [Copy(1, STORED, verified_at), Copy(3, STORED, verified_at), Copy(surplus, STORED, MOMENT)]
        decision = decide(FileNeeds(size=10, copies=2), copies, view_disks(disks, present=MOMENT), Random(1))
        expected = ((surplus,), ()) if verified_at == lately else ((), (1, 3))
        assert (decision.remove_from, decision.verify, decision.is_settled) == (*expected, False)
    bad = [Copy(1, STORED), Copy(3, STORED), Copy(2, BAD)]
    decision = decide(FileNeeds(size=10, copies=2), bad, view_disks(disks, present=MOMENT), Random(1))
    assert (decision.remove_from, decision.verify) == ((2,), ()), "what is left of a bad copy saves nothing"


def test_copies_of_a_tombstone_are_removed_from_the_disks_that_are_there_and_the_others_are_waited_for() -> None:
    disks = [disk(1), disk(2, silent_for=60), disk(3, state=DiskState.LOST)]
    copies = Copy(1, STORED), Copy(2, PLANNED), Copy(3, STORED)
    decision = decision_of(disks, *copies, is_deleted=True)
    assert (decision.health, decision.remove_from, decision.forget) == (FileHealth.DELETED, (1,), (3,))
    assert decision.blocked == "1 of its disks are away"
    assert decision_of(disks, Copy(3, STORED), is_deleted=True).health is FileHealth.GONE


def test_the_copies_of_many_files_are_spread_over_disks_by_their_room() -> None:
    disks = [disk(1, free=10_000), *(disk(number, free=1_000 * number) for number in (2, 3, 4))]
    random, view = Random(7), view_disks(disks)
    needs = FileNeeds(size=10, copies=2)
    chosen = [decide(needs, [Copy(1, STORED)], view, random).copy_to for _ in range(9_000)]
    shares = [sum(disk_id == (number,) for disk_id in chosen) / 1_000 for number in (2, 3, 4)]
    assert all(abs(share - number) < 0.4 for share, number in zip(shares, (2, 3, 4), strict=True))


# ---------------------------------------------------------------- whatever happens

SILENCE, VERIFIED = st.sampled_from([0.0, 60.0, AWAY]), st.sampled_from([None, MOMENT])
DRAWN_DISK = st.tuples(st.integers(1, 5), st.sampled_from(DiskState), SILENCE, VERIFIED, st.integers(0, 40))
DISKS = st.lists(DRAWN_DISK, min_size=1, max_size=7)
DRAWN_COPY = st.tuples(st.sampled_from(CopyState), st.sampled_from([None, MOMENT - timedelta(1), MOMENT]))
COPIES = st.dictionaries(st.integers(1, 8), DRAWN_COPY, max_size=8)
DrawnDisks = list[tuple[int, DiskState, float, datetime | None, int]]
DrawnCopies = dict[int, tuple[CopyState, datetime | None]]


@examples(6)
@given(DISKS, COPIES, st.integers(1, 3), st.integers(1, 2), st.integers(0, 2**32))
def test_no_decision_takes_the_last_good_copies_or_puts_two_on_a_node(
    drawn: DrawnDisks, given_copies: DrawnCopies, wanted: int, zones: int, seed: int
) -> None:
    disks = [
        disk(number, node=f"n{node}", zone=f"z{node % 2}", state=state, silent_for=away, verified_since=at, free=free)
        for number, (node, state, away, at, free) in enumerate(drawn, 1)
    ]
    view = view_disks(disks)
    copies = [Copy(number, *values) for number, values in given_copies.items()]
    decision = decide(FileNeeds(size=10, copies=wanted, zones=zones), copies, view, Random(seed))
    good = {copy.disk_id for copy in copies if counts(copy, view)}
    lasting = {number for number in good if view.disks[number].state is not DiskState.DRAIN}
    left = lasting - set(decision.remove_from)
    nodes_left = {view.disks[number].node for number in left}
    if set(decision.remove_from) & good:
        assert len(nodes_left) >= wanted, "a good copy goes only when enough others stay"
    assert not set(decision.forget) & good
    chosen = [view.disks[number] for number in decision.copy_to]
    assert not {one.node for one in chosen} & {view.disks[number].node for number in lasting}
    assert len({one.node for one in chosen}) == len(chosen)
    assert all((one.state, one.silent_for) == (DiskState.ACTIVE, 0) and one.free >= 10 for one in chosen)
    if decision.is_settled:
        assert len({view.disks[number].node for number in lasting}) >= wanted


@examples(3)
@given(DISKS, COPIES, st.integers(1, 3), st.integers(1, 2), st.integers(0, 2**32))
def test_when_decisions_are_carried_out_a_file_settles_with_its_copies_and_no_more(
    drawn: DrawnDisks, given_copies: DrawnCopies, wanted: int, zones: int, seed: int
) -> None:
    disks = [
        disk(number, node=f"n{node}", zone=f"z{node % 2}", state=state, free=free + 10)
        for number, (node, state, _, _, free) in enumerate(drawn, 1)
    ]
    view, needs, random = view_disks(disks), FileNeeds(size=10, copies=wanted, zones=zones), Random(seed)
    copies = {number: state for number, (state, _) in given_copies.items()}
    decision, good = Decision(health=FileHealth.LOST), False
    for _ in range(12):
        found = [Copy(number, state) for number, state in copies.items()]
        good = any(counts(copy, view) for copy in found)
        decision = decide(needs, found, view, random)
        if decision.is_settled:
            break
        copies |= dict.fromkeys(decision.copy_to, PLANNED)
        for number in (*decision.remove_from, *decision.forget):
            del copies[number]
        if good:
            copies = {number: STORED if state is PLANNED else state for number, state in copies.items()}
    stored = [view.disks[number] for number, state in copies.items() if state is STORED and number in view.disks]
    nodes = {one.node for one in stored if one.state is not DiskState.DRAIN}
    able = {one.node for one in disks if one.state is DiskState.ACTIVE}
    if not decision.is_settled:
        assert not good or len(able | nodes) < wanted
    elif decision.health is FileHealth.WHOLE:
        assert len(nodes) == wanted or (zones == 2 and len(nodes) == wanted + 1)


def test_copies_go_to_object_stores_and_to_folders_as_the_class_says() -> None:
    disks = [disk(1), disk(2), disk(3), object_disk(4), object_disk(5)]
    for in_objects, folders, stores in ((0, 2, 0), (1, 1, 1), (2, 0, 2)):
        decision = decision_of(disks, Copy(1, STORED), copies=2, object_copies=in_objects)
        new = [number for number in decision.copy_to if number in {4, 5}]
        assert len(new) == stores
        assert len(decision.copy_to) - len(new) == max(0, folders - 1)
        copies = [Copy(1, STORED), *(Copy(number, STORED) for number in decision.copy_to)]
        after = decision_of(disks, *copies, copies=2, object_copies=in_objects)
        assert (after.health, after.copy_to) == (FileHealth.WHOLE, ())
        assert after.remove_from == (() if folders else (1,)), "a copy that a put has made in a folder is moved"
    none = {"health": AT_RISK, "copy_to": (), "remove_from": (), "blocked": "no object store has room for 1 more"}
    waits = {"health": AT_RISK, "remove_from": ()}
    assert_decided(
        ("a folder does not take its place", THREE, stored(1, 2), none),
        ("and stays until its copy is there", disks, [*stored(1, 2), Copy(4, PLANNED)], waits),
        object_copies=1,
    )
    assert decision_of(disks, *stored(1, 2, 4), object_copies=1).remove_from in {(1,), (2,)}
    for wrong in (-1, 3):
        assert "cannot be in object stores" in (FileClass(name="c", copies=2, object_copies=wrong).problem() or "")


SETTLED_COPIES = st.dictionaries(
    st.integers(1, 4), st.tuples(st.sampled_from(CopyState), st.sampled_from([None, 0, 5])), max_size=4
)


@given(
    files=st.lists(
        st.tuples(st.integers(1, 3), st.booleans(), st.sampled_from([5, ROOM - 1, 10 * ROOM]), SETTLED_COPIES),
        min_size=1,
        max_size=12,
    ),
    silent=st.sets(st.integers(1, 3), max_size=1),
    verified_since=st.sampled_from([None, 3]),
)
@examples(3)
def test_a_settled_decision_that_is_taken_again_is_the_one_that_would_be_taken(
    files: list[tuple[int, bool, int, dict[int, tuple[CopyState, int | None]]]],
    silent: set[int],
    verified_since: int | None,
) -> None:
    def moment(minutes: int | None) -> datetime | None:
        return None if minutes is None else MOMENT + timedelta(minutes=minutes)

    disks = [
        disk(number, silent_for=AWAY if number in silent else 0.0, verified_since=moment(verified_since))
        for number in (1, 2, 3)
    ]
    view = view_disks(disks, present=MOMENT + timedelta(minutes=10))
    settled = Settled(view)
    for copies, is_deleted, size, states in files:
        needs = FileNeeds(size=size, copies=copies, is_deleted=is_deleted)
        rows = [Copy(number, state, moment(verified)) for number, (state, verified) in sorted(states.items())]
        assert settled.decide(needs, rows, Random(1)) == decide(needs, rows, view, Random(1))
