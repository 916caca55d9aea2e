"""Sixty mutants of all that there are: each package of peerd by its size, each kind as often as another."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.mutant import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "peerd"


def all_mutants() -> list[Mutant]:
    """Those of the whole package but its migrations: what a released one does, never changes."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if "migrations" not in path.parts]
    return [mutant for path in paths for mutant in mutants_of(path, ROOT)]


def choose(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many mutants, by chance: no two in one function, the kinds of a package in turns."""
    randomly = random.Random(seed)
    by_package: defaultdict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_package[package_of(mutant)].append(mutant)
    kinds: Counter[str] = Counter()
    chosen: list[Mutant] = []
    for package, seats in sorted(_seats({name: len(found) for name, found in by_package.items()}, count).items()):
        candidates = randomly.sample(by_package[package], len(by_package[package]))
        for _ in range(seats):
            taken = {(mutant.path, mutant.function) for mutant in chosen}
            free = [mutant for mutant in candidates if (mutant.path, mutant.function) not in taken]
            mutant = min(free, key=lambda one: kinds[one.kind])
            kinds[mutant.kind] += 1
            chosen.append(mutant)
    return chosen


def package_of(mutant: Mutant) -> str:
    parts = Path(mutant.path).parts[2:]
    return parts[0] if len(parts) > 1 else ""


def _seats(sizes: dict[str, int], count: int) -> dict[str, int]:
    """Seats by size, by the largest remainder; a package that is large enough for half a seat has one."""
    shares = {name: size * count / sum(sizes.values()) for name, size in sizes.items()}
    seats = {name: max(1, int(share)) if share >= 0.5 else 0 for name, share in shares.items()}
    for name in sorted(shares, key=lambda one: seats[one] - shares[one])[: max(0, count - sum(seats.values()))]:
        seats[name] += 1
    return seats
