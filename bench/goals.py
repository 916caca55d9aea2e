"""What must be shown: each line with what was wanted and what this run measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from bench.pick_up_latency import FROM_A_NODE
from bench.samples import (
    FairnessWait,
    Idle,
    Key,
    PickUp,
    ReadCounts,
    Sample,
    Shape,
    Timings,
    TimingSample,
    percentile,
    short,
)

NOT_YET: Final = "not measured"
MARIADB: Final = ("mariadb-mysqlclient", "mariadb", "mysql-mysqlclient", "mysql")
"""By the C driver, and by the pure one; and MySQL."""
HUNDRED: Final = 100


class Goal(msgspec.Struct, frozen=True):
    """One line: its name, what is wanted, and how it is read from the samples."""

    what: str
    wanted: str
    measured: Callable[[Sequence[Sample]], str]


def _ratio(ours: Callable[[str], Key], theirs: Callable[[str], Key], *databases: str) -> Callable[..., str]:
    def measured(samples: Sequence[Sample]) -> str:
        timings = Timings(one for one in samples if isinstance(one, TimingSample))
        found = {database: timings.ratio(ours(database), theirs(database)) for database in databases}
        return _listed({database: str(ratio) for database, ratio in found.items() if ratio is not None})

    return measured


def _fastest(ours: Callable[[str], Key], database: str, name: str) -> Callable[..., str]:
    """Beside the setting of a peer with which it is fastest."""

    def measured(samples: Sequence[Sample]) -> str:
        timings = Timings(one for one in samples if isinstance(one, TimingSample))
        theirs = [key for key in timings if key[:2] == (database, "drain") and key[3].startswith(name)]
        if not theirs:
            return NOT_YET
        best = max(theirs, key=lambda key: timings.rate(*key) or 0.0)
        ratio = timings.ratio(ours(database), best)
        return f"{ratio} × {best[3]}" if ratio is not None else NOT_YET

    return measured


def _listed(found: dict[str, str]) -> str:
    return "; ".join(f"{database}: {words}" for database, words in found.items()) or NOT_YET


def _drain(database: str) -> Key:
    return database, "drain", HUNDRED, "peerd"


def _floor(database: str) -> Key:
    return database, "claim + complete", HUNDRED, "bare"


def _key(measurement: str, batch: int, by: str = "peerd") -> Callable[[str], Key]:
    return lambda database: (database, measurement, batch, by)


def _pick_up(samples: Sequence[Sample]) -> str:
    found: dict[str, list[float]] = {}
    for one in samples:
        if isinstance(one, PickUp) and one.by in {FROM_A_NODE, "Celery"}:
            found.setdefault("Celery" if one.by == "Celery" else one.database, []).append(one.milliseconds)
    theirs = found.pop("Celery", [])
    if not theirs:
        return NOT_YET
    return _listed({
        database: " and ".join(
            f"{short(percentile(waited, share) / percentile(theirs, share))} ×" for share in (0.5, 0.99)
        )
        for database, waited in found.items()
    })  # fmt: skip


def _shapes_touch(samples: Sequence[Sample]) -> str:
    words = {}
    for database, shapes in _by_database([one for one in samples if isinstance(one, Shape)]).items():
        told = [one for one in shapes if one.read.rows is not None]
        if told:
            more = [one for one in told if _touched(one.read) != _touched(one.empty_read)]
            names = ", ".join(f"{one.shape} of {one.rows:,}" for one in more)
            words[database] = f"{len(told) - len(more)} of {len(told)} equal" + (f"; not: {names}" if names else "")
    return _listed(words)


def _touched(read: ReadCounts) -> tuple[int | None, int | None]:
    return read.rows, read.locks


def _shapes_wait(samples: Sequence[Sample]) -> str:
    words = {}
    for database, shapes in _by_database([one for one in samples if isinstance(one, Shape)]).items():
        ratios = [percentile(one.milliseconds, 0.99) / percentile(one.empty_milliseconds, 0.99) for one in shapes]
        worst = shapes[ratios.index(max(ratios))]
        words[database] = f"{short(max(ratios))} at the most ({worst.shape})"
    return _listed(words)


def _by_database(shapes: Sequence[Shape]) -> dict[str, list[Shape]]:
    found: dict[str, list[Shape]] = {}
    for one in shapes:
        found.setdefault(one.database, []).append(one)
    return found


def _idle(samples: Sequence[Sample]) -> str:
    return _listed({one.database: short(one.statements / one.seconds) for one in samples if isinstance(one, Idle)})


def _fair(samples: Sequence[Sample]) -> str:
    longest: dict[str, float] = {}
    for one in samples:
        if isinstance(one, FairnessWait):
            longest[one.database] = max(one.milliseconds, longest.get(one.database, 0.0))
    return _listed({database: f"{short(waited)} ms" for database, waited in longest.items()})


def _elsewhere(_: Sequence[Sample]) -> str:
    return "not by make bench: docs/scaling.md"


SERVERS: Final = (*MARIADB, "postgresql")
EVERYWHERE: Final = ("sqlite", "sqlite-normal", *SERVERS)
GOALS: Final = (
    Goal("drain on MariaDB and MySQL ÷ floor, batch 100", "≥ 0.9", _ratio(_drain, _floor, *MARIADB)),
    Goal("drain on MariaDB and MySQL ÷ Huey", "≥ 30", _ratio(_drain, _key("drain", 10, "Huey"), *MARIADB)),
    Goal("drain on PostgreSQL ÷ floor, batch 100", "≥ 1", _ratio(_drain, _floor, "postgresql")),
    Goal("drain on PostgreSQL ÷ PgQueuer at its best", "≥ 2.5", _fastest(_drain, "postgresql", "PgQueuer")),
    Goal("drain on SQLite ÷ Huey", "≥ 12", _ratio(_drain, _key("drain", 10, "Huey"), "sqlite", "sqlite-normal")),
    Goal("two processes ÷ one, 1 ms of CPU each", "≥ 1.8", _ratio(_key("cores", 2), _key("cores", 1), *EVERYWHERE)),
    Goal(
        "bulk enqueue on MariaDB ÷ floor",
        "≥ 0.5",
        _ratio(_key("enqueue", 1000), _key("enqueue", 1000, "bare"), *MARIADB),
    ),
    Goal("single enqueue ÷ floor", "≥ 0.6", _ratio(_key("enqueue", 1), _key("enqueue", 1, "bare"), *EVERYWHERE)),
    Goal("pick-up from another node ÷ Celery on Redis, p50 and p99", "≤ 1.5 (MariaDB)", _pick_up),
    Goal("rows read and locked by a claim, by shape", "equal", _shapes_touch),
    Goal("a claim's p99 by shape ÷ empty table", "≤ 1.5", _shapes_wait),
    Goal("Galera, three servers ÷ one; conflicts", "≥ 0.5; < 2 %", _elsewhere),
    Goal("statements a second of an idle node", "≤ 2", _idle),
    Goal("longest wait while a place is free", "≤ 50 ms", _fair),
)
