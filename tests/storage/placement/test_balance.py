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


def test_a_disk_is_too_full_by_more_than_a_twentieth_of_its_size() -> None:
    view = view_disks([disk(1, 500), disk(2, 400), disk(3, 390)])
    balance = Balance(view)
    assert round(balance.mean, 2) == 0.43
    assert [balance.is_too_full(one) for one in balance.disks] == [True, False, False]
    assert (balance.excess(view.disks[1]), balance.room(view.disks[3])) == (70, 40)


def test_only_disks_that_can_get_copies_are_compared() -> None:
    others: list[dict[str, Any]] = [{"state": DiskState.DRAIN}, {"silent_for": 60.0}, {"kind": DiskKind.S3}]
    others.append({"state": DiskState.READONLY})
    for more in others:
        view = view_disks([disk(1, 500), disk(2, 500), disk(3, 0, **more)])
        assert [one.id for one in Balance(view).disks] == [1, 2]
        assert choose_moves(view.disks[1], [movable(1, 1, 2)], view, Random(1)) == {}


def test_copies_go_to_emptier_disks_as_far_as_they_have_room_below_the_mean() -> None:
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


class SimulatedDisks:
    """Disks of different sizes, of which the first is empty, and files that are kept as often as their class wants."""

    def __init__(self, random: Random, count: int, copies: int, zones: int) -> None:
        self.random = random
        self._sizes = [random.choice([2_000, 4_000]) for _ in range(count)]
        self._zones = ["xyz"[number % 3] if zones > 1 else None for number in range(count)]
        self.needs = FileNeeds(size=10, copies=min(copies, count - 1), zones=min(zones, copies, count - 1))
        self.held = {number: self._place() for number in range(60 * (count - 1) // self.needs.copies)}

    def _place(self) -> set[int]:
        while True:
            found = set(self.random.sample(range(1, len(self._sizes)), self.needs.copies))
            if self.spread(found) >= self.needs.zones:
                return found

    def spread(self, disks: set[int]) -> int:
        return len({self._zones[number] for number in disks})

    @property
    def view(self) -> DiskView:
        used = [10 * sum(number in disks for disks in self.held.values()) for number in range(len(self._sizes))]
        numbers = range(len(self._sizes))
        return view_disks([disk(one, used[one], self._sizes[one], zone=self._zones[one]) for one in numbers])

    def copies(self, number: int) -> list[Copy]:
        return [Copy(one, STORED) for one in sorted(self.held[number])]

    def move(self) -> list[int]:
        """Begin the moves of the first disk that is too full; return the files that have a copy more."""
        view = self.view
        full = [one for one in Balance(view).disks if Balance(view).is_too_full(one)]
        if not full:
            return []
        on_it = [number for number, disks in self.held.items() if full[0].id in disks]
        files = [Movable(number, self.needs, self.copies(number)) for number in on_it]
        moves = choose_moves(full[0], files, view, self.random)
        for target, moved in moves.items():
            for file in moved:
                self.held[file.id].add(target)
        return [file.id for moved in moves.values() for file in moved]

    def trim(self, number: int) -> None:
        decision = decide(self.needs, self.copies(number), self.view, self.random)
        assert decision.copy_to == (), "no copy is lacking"
        self.held[number] -= set(decision.remove_from)


@given(st.integers(0, 10**6), st.integers(3, 7), st.integers(1, 3), st.integers(1, 2))
def test_moves_and_decisions_together_end_in_balance_and_never_take_a_copy_too_many(
    seed: int, count: int, copies: int, zones: int
) -> None:
    it = SimulatedDisks(Random(seed), count, copies, zones)
    for _ in range(60):
        moved = it.move()
        for number in moved:
            it.trim(number)
            assert len(it.held[number]) == it.needs.copies, "one is removed, and no more"
            assert it.spread(it.held[number]) >= it.needs.zones
        if not moved:
            break
    shares = [one.used_share for one in it.view.disks.values()]
    if zones == 1:
        assert max(shares) <= Balance(it.view).mean + TOLERANCE + 0.02, shares
