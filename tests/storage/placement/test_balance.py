"""Which copies are moved from a disk that is fuller than the others, and where to."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from peerd.domain.files import Copy, CopyState, Disk, DiskKind, DiskState, FileNeeds
from peerd.storage.placement.balance import TOLERANCE, Balance, Movable, choose_moves
from peerd.storage.placement.brake import DiskView, view_disks
from peerd.storage.placement.decision import decide

STORED = CopyState.STORED


def disk(number: int, used: int, size: int = 1_000, **more: object) -> Disk:
    values: dict[str, object] = {"id": number, "node": f"node-{number}", "size": size, "free": size - used, **more}
    return Disk(**values)  # type: ignore[arg-type]


def movable(number: int, *disks: int, size: int = 10, zones: int = 1) -> Movable:
    return Movable(number, FileNeeds(size=size, copies=len(disks), zones=zones), [Copy(one, STORED) for one in disks])


def test_only_disks_that_can_get_copies_are_compared() -> None:
    others: list[dict[str, Any]] = [{"state": DiskState.DRAIN}, {"silent_for": 60.0}, {"kind": DiskKind.S3}]
    for more in [*others, {"state": DiskState.READONLY}]:
        view = view_disks([disk(1, 500), disk(2, 500), disk(3, 0, **more)])
        assert [one.id for one in Balance(view).disks] == [1, 2]
        assert choose_moves(view.disks[1], [movable(1, 1, 2)], view, Random(1)) == {}


def test_copies_go_to_emptier_disks_as_far_as_they_have_room_below_the_mean() -> None:
    three = view_disks([disk(1, 500), disk(2, 400), disk(3, 390)])
    balance = Balance(three)
    assert [balance.is_too_full(one) for one in balance.disks] == [True, False, False], "a twentieth is tolerated"
    assert (balance.excess(three.disks[1]), balance.room(three.disks[3])) == (70, 40)
    view = view_disks([disk(1, 900), disk(2, 500), disk(3, 100), disk(4, 500)])
    files = [movable(number, 1, 2) for number in range(100)]
    moves = choose_moves(view.disks[1], files, view, Random(1))
    assert set(moves) == {3}
    assert len(moves[3]) == 20, "half of what is too much"


def test_a_copy_does_not_go_to_the_node_of_another_copy_nor_to_fewer_zones() -> None:
    disks = [disk(1, 900, zone="x"), disk(2, 900, zone="y"), disk(3, 0, zone="y"), disk(4, 0, node="node-2", zone="x")]
    view = view_disks(disks)
    file = movable(1, 1, 2, zones=2)
    assert choose_moves(disks[0], [file], view, Random(1)) == {}
    assert set(choose_moves(disks[1], [file], view, Random(1))) == {3}
    assert set(choose_moves(disks[0], [movable(1, 1, 2)], view, Random(1))) == {3}, "where zones do not matter"


def test_a_disk_that_cannot_be_written_gets_nothing_and_files_larger_than_the_excess_stay() -> None:
    view = view_disks([disk(1, 900), disk(2, 0, problem="it is read-only"), disk(3, 0)])
    assert set(choose_moves(view.disks[1], [movable(1, 1)], view, Random(1))) == {3}
    assert choose_moves(view.disks[1], [movable(1, 1, size=700)], view, Random(1)) == {}


@given(st.integers(0, 10**6), st.integers(3, 7), st.integers(1, 3))
def test_moves_and_decisions_end_in_balance_and_take_no_copy_too_many(seed: int, count: int, copies: int) -> None:
    """Of disks of different sizes the first is empty."""
    random, needs = Random(seed), FileNeeds(size=10, copies=min(copies, count - 1))
    sizes = [random.choice([2_000, 4_000]) for _ in range(count)]
    held = {
        number: set(random.sample(range(1, count), needs.copies)) for number in range(60 * (count - 1) // needs.copies)
    }

    def view() -> DiskView:
        used = [10 * sum(one in disks for disks in held.values()) for one in range(count)]
        return view_disks([disk(one, used[one], sizes[one]) for one in range(count)])

    def copies_of(number: int) -> list[Copy]:
        return [Copy(one, STORED) for one in sorted(held[number])]

    while full := [one for one in Balance(view()).disks if Balance(view()).is_too_full(one)]:
        files = [Movable(number, needs, copies_of(number)) for number, disks in held.items() if full[0].id in disks]
        moves = choose_moves(full[0], files, view(), random)
        if not moves:
            break
        for file_id, target in [(file.id, target) for target, moved in moves.items() for file in moved]:
            held[file_id].add(target)
            decision = decide(needs, copies_of(file_id), view(), random)
            assert decision.copy_to == (), "no copy is lacking"
            held[file_id] -= set(decision.remove_from)
            assert len(held[file_id]) == needs.copies, "one is removed, and no more"
    assert max(one.used_share for one in view().disks.values()) <= Balance(view()).mean + TOLERANCE + 0.02
