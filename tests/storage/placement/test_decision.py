"""What a file needs, decided from its copies and the disks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerd.domain.files import Copy, CopyState, Disk, DiskKind, DiskState, FileClass, FileNeeds
from peerd.storage.placement.brake import GRACE, view_disks
from peerd.storage.placement.decision import (
    VERIFIED_BEFORE_REMOVAL,
    Decision,
    FileHealth,
    Settled,
    counts,
    decide,
)

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


def test_a_file_with_its_copies_needs_nothing() -> None:
    decision = decision_of([disk(1), disk(2), disk(3)], Copy(1, STORED), Copy(3, STORED))
    assert decision == Decision(health=FileHealth.WHOLE, good=2, is_settled=True)


def test_a_copy_that_is_being_made_is_waited_for_and_not_made_twice() -> None:
    decision = decision_of([disk(1), disk(2), disk(3)], Copy(1, STORED), Copy(3, PLANNED))
    assert decision == Decision(health=FileHealth.AT_RISK, good=1)


def test_two_copies_of_a_node_are_one() -> None:
    disks = [disk(1), disk(2, node="node-1"), disk(3)]
    decision = decision_of(disks, Copy(1, STORED), Copy(2, STORED))
    assert (decision.health, decision.good, decision.copy_to) == (FileHealth.AT_RISK, 1, (3,))
    decision = decision_of(disks, Copy(1, STORED), Copy(2, STORED), Copy(3, STORED))
    assert (decision.health, decision.remove_from) == (FileHealth.WHOLE, (1,)), "one of the double ones goes"


def test_without_another_node_the_file_stays_at_risk_and_the_reason_is_given() -> None:
    decision = decision_of([disk(1), disk(2, node="node-1"), disk(3, free=5)], Copy(1, STORED))
    assert (decision.health, decision.copy_to) == (FileHealth.AT_RISK, ())
    assert decision.blocked == "no other node has a disk with room for 1 more"


@pytest.mark.parametrize(
    "unusable",
    [
        {"state": DiskState.READONLY},
        {"state": DiskState.DRAIN},
        {"state": DiskState.LOST},
        {"problem": "it is read-only"},
        {"silent_for": 60.0},
        {"free": 9},
    ],
    ids=lambda one: "-".join(map(str, one.values())),
)
def test_a_disk_that_cannot_take_a_copy_gets_none(unusable: dict[str, object]) -> None:
    decision = decision_of([disk(1), disk(2, **unusable)], Copy(1, STORED))
    assert (decision.health, decision.copy_to) == (FileHealth.AT_RISK, ())


def test_a_silent_disk_counts_for_its_grace_period_and_then_its_copies_are_made_elsewhere() -> None:
    for silence, expected in ((GRACE, ()), (AWAY, (3,))):
        disks = [disk(1), disk(2, silent_for=silence), disk(3)]
        decision = decision_of(disks, Copy(1, STORED), Copy(2, STORED))
        assert decision.copy_to == expected
        assert decision.forget == (), "the disk may come back"


def test_a_disk_that_came_back_counts_again_only_when_its_copy_was_verified_and_the_surplus_goes_then() -> None:
    disks = [disk(1), disk(2, verified_since=MOMENT, free=1), disk(3)]
    before, after = Copy(2, STORED, MOMENT - timedelta(hours=1)), Copy(2, STORED, MOMENT)
    decision = decision_of(disks, Copy(1, STORED), before, Copy(3, STORED))
    assert (decision.health, decision.remove_from, decision.is_settled) == (FileHealth.WHOLE, (), False)
    assert decision_of(disks, Copy(1, STORED), after, Copy(3, STORED)).remove_from == (2,)


def test_while_too_many_nodes_are_silent_nothing_is_repaired_but_new_files_get_their_copies() -> None:
    disks = [disk(1), disk(2, silent_for=AWAY), disk(3, silent_for=AWAY), disk(4)]
    assert decision_of(disks, Copy(1, STORED), Copy(2, STORED)).is_settled
    assert decision_of(disks, Copy(1, STORED)).copy_to == (4,)
    one_lost = [disk(1), disk(2, silent_for=AWAY), disk(3, state=DiskState.LOST), disk(4)]
    assert decision_of(one_lost, Copy(1, STORED), Copy(2, STORED)).copy_to == (4,), "an operator has decided"


def test_the_copies_of_a_lost_disk_are_forgotten_when_others_are_planned_and_not_before_the_last_hope_is_gone() -> None:
    lost = disk(2, state=DiskState.LOST)
    decision = decision_of([disk(1), lost, disk(3)], Copy(1, STORED), Copy(2, STORED))
    assert (decision.copy_to, decision.forget) == ((3,), (2,))
    away = disk(1, silent_for=AWAY)
    decision = decision_of([away, lost, disk(3)], Copy(1, STORED), Copy(2, STORED))
    assert (decision.health, decision.copy_to, decision.forget) == (FileHealth.UNREACHABLE, (), ())
    decision = decision_of([lost, disk(3)], Copy(2, STORED))
    assert (decision.health, decision.forget) == (FileHealth.LOST, (2,))


def test_a_bad_copy_is_made_anew_elsewhere_or_on_its_own_disk_and_removed_last() -> None:
    decision = decision_of([disk(1), disk(2), disk(3)], Copy(1, STORED), Copy(2, BAD))
    assert (decision.copy_to, decision.remove_from) == ((3,), ())
    decision = decision_of([disk(1), disk(2)], Copy(1, STORED), Copy(2, BAD))
    assert decision.copy_to == (2,)
    decision = decision_of([disk(1), disk(2), disk(3)], Copy(1, STORED), Copy(2, BAD), Copy(3, STORED))
    assert decision.remove_from == (2,)


def test_a_drained_disk_is_a_source_until_another_node_has_the_copy() -> None:
    disks = [disk(1), disk(2, state=DiskState.DRAIN), disk(3)]
    decision = decision_of(disks, Copy(1, STORED), Copy(2, STORED))
    assert (decision.good, decision.copy_to, decision.remove_from) == (2, (3,), ())
    assert decision_of(disks, Copy(1, STORED), Copy(2, STORED), Copy(3, PLANNED)).remove_from == ()
    assert decision_of(disks, Copy(1, STORED), Copy(2, STORED), Copy(3, STORED)).remove_from == (2,)


def test_copies_are_on_as_many_zones_as_wanted_as_far_as_there_are_so_many() -> None:
    disks = [disk(1, zone="x"), disk(2, zone="x"), disk(3, zone="y")]
    assert decision_of(disks, Copy(1, STORED), zones=2).copy_to == (3,)
    decision = decision_of(disks, Copy(1, STORED), Copy(2, STORED), zones=2)
    assert (decision.health, decision.copy_to, decision.remove_from) == (FileHealth.AT_RISK, (3,), ())
    decision = decision_of(disks, *(Copy(number, STORED) for number in (1, 2, 3)), zones=2)
    assert decision.remove_from == (1,), "trimming looks at zones"
    assert decision_of(disks[:2], Copy(1, STORED), Copy(2, STORED), zones=2).is_settled, "there is one zone"


def test_the_surplus_is_removed_from_the_fullest_disks() -> None:
    disks = [disk(1, free=500), disk(2, free=100), disk(3, free=300)]
    assert decision_of(disks, *(Copy(number, STORED) for number in (1, 2, 3))).remove_from == (2,)


def test_a_good_copy_is_removed_only_when_those_that_stay_were_verified_lately() -> None:
    disks = [disk(1, free=500), disk(2, free=100), disk(3, free=300), disk(4, state=DiskState.DRAIN)]
    lately, before = MOMENT - VERIFIED_BEFORE_REMOVAL, MOMENT - VERIFIED_BEFORE_REMOVAL - timedelta(seconds=1)
    for surplus, stay in ((2, (1, 3)), (4, (1, 3))):
        for verified_at in (lately, before, None):
            copies = [*(Copy(number, STORED, verified_at) for number in stay), Copy(surplus, STORED, MOMENT)]
            decision = decide(FileNeeds(size=10, copies=2), copies, view_disks(disks, present=MOMENT), Random(1))
            if verified_at == lately:
                assert (decision.remove_from, decision.verify) == ((surplus,), ())
            else:
                assert (decision.remove_from, decision.verify) == ((), stay)
            assert not decision.is_settled
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

STATES = st.sampled_from(DiskState)
DISKS = st.lists(
    st.tuples(
        st.integers(1, 5),
        STATES,
        st.sampled_from([0.0, 60.0, AWAY]),
        st.sampled_from([None, MOMENT]),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=7,
)
COPIES = st.dictionaries(
    st.integers(1, 8),
    st.tuples(st.sampled_from(CopyState), st.sampled_from([None, MOMENT - timedelta(1), MOMENT])),
    max_size=8,
)


def disks_of(drawn: list[tuple[int, DiskState, float, datetime | None, int]]) -> list[Disk]:
    return [
        disk(
            number,
            node=f"n{node}",
            zone=f"z{node % 2}",
            state=state,
            silent_for=silence,
            verified_since=since,
            free=free,
        )
        for number, (node, state, silence, since, free) in enumerate(drawn, 1)
    ]


@settings(max_examples=600, deadline=None)
@given(DISKS, COPIES, st.integers(1, 3), st.integers(1, 2), st.integers(0, 2**32))
def test_no_decision_takes_the_last_good_copies_or_puts_two_on_a_node(
    drawn: list[tuple[int, DiskState, float, datetime | None, int]],
    given_copies: dict[int, tuple[CopyState, datetime | None]],
    wanted: int,
    zones: int,
    seed: int,
) -> None:
    disks = disks_of(drawn)
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
    assert not {view.disks[number].node for number in decision.copy_to} & {
        view.disks[number].node for number in lasting
    }
    assert len({view.disks[number].node for number in decision.copy_to}) == len(decision.copy_to)
    for number in decision.copy_to:
        chosen = view.disks[number]
        assert (chosen.state, chosen.problem) == (DiskState.ACTIVE, None)
        assert chosen.silent_for == 0
        assert chosen.free >= 10
    if decision.is_settled:
        assert len({view.disks[number].node for number in lasting}) >= wanted


@settings(max_examples=300, deadline=None)
@given(DISKS, COPIES, st.integers(1, 3), st.integers(1, 2), st.integers(0, 2**32))
def test_when_decisions_are_carried_out_a_file_settles_with_its_copies_and_no_more(
    drawn: list[tuple[int, DiskState, float, datetime | None, int]],
    given_copies: dict[int, tuple[CopyState, datetime | None]],
    wanted: int,
    zones: int,
    seed: int,
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


def object_disk(number: int, **more: object) -> Disk:
    return disk(number, **{"node": None, "kind": DiskKind.S3, "zone": f"object store {number}", **more})


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


def test_a_folder_does_not_take_the_place_of_an_object_store() -> None:
    decision = decision_of([disk(1), disk(2), disk(3)], Copy(1, STORED), Copy(2, STORED), object_copies=1)
    assert (decision.health, decision.copy_to, decision.remove_from) == (FileHealth.AT_RISK, (), ())
    assert decision.blocked == "no object store has room for 1 more"


def test_no_copy_is_removed_before_the_one_in_the_object_store_is_there() -> None:
    disks = [disk(1), disk(2), object_disk(4)]
    waiting = decision_of(disks, Copy(1, STORED), Copy(2, STORED), Copy(4, PLANNED), object_copies=1)
    assert (waiting.health, waiting.remove_from) == (FileHealth.AT_RISK, ())
    done = decision_of(disks, Copy(1, STORED), Copy(2, STORED), Copy(4, STORED), object_copies=1)
    assert len(done.remove_from) == 1
    assert done.remove_from[0] in {1, 2}


def test_an_object_store_is_a_zone_of_its_own() -> None:
    disks = [disk(1, zone="a"), disk(2, zone="a"), object_disk(4)]
    decision = decision_of(disks, Copy(1, STORED), Copy(2, STORED), zones=2)
    assert (decision.health, decision.copy_to) == (FileHealth.AT_RISK, (4,))
    whole = decision_of(disks, Copy(1, STORED), Copy(4, STORED), zones=2)
    assert whole == Decision(health=FileHealth.WHOLE, good=2, is_settled=True)


@pytest.mark.parametrize("in_objects", [-1, 3])
def test_more_copies_in_object_stores_than_there_are_make_no_class(in_objects: int) -> None:
    problem = FileClass(name="c", copies=2, object_copies=in_objects).problem()
    assert problem == f"object_copies: {in_objects} of 2 copies cannot be in object stores"


@given(
    files=st.lists(
        st.tuples(
            st.integers(1, 3),
            st.booleans(),
            st.sampled_from([5, ROOM - 1, 10 * ROOM]),
            st.dictionaries(
                st.integers(1, 4), st.tuples(st.sampled_from(CopyState), st.sampled_from([None, 0, 5])), max_size=4
            ),
        ),
        min_size=1,
        max_size=12,
    ),
    silent=st.sets(st.integers(1, 3), max_size=1),
    verified_since=st.sampled_from([None, 3]),
)
@settings(max_examples=300)
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
