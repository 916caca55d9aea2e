"""How much a run measures."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each measurement.

    ``enqueue``, ``hold`` (claim and complete) and ``drain`` give tasks by batch (drain: by tasks at once); ``peers``
    those of which the module is named so, or all; ``peer_seconds`` how long a peer's drain should take. ``processes``
    and ``nodes`` are numbers of worker processes. ``idle_settling`` are seconds of rest before statements are counted:
    pauses have grown, and what a start does is done. ``shapes`` is a factor for the rows of a shape.
    """

    rounds: int
    on: tuple[str, ...]
    only: tuple[str, ...]
    enqueue: Mapping[int, int]
    hold: Mapping[int, int]
    drain: Mapping[int, int]
    peers: tuple[str, ...] | None = None
    peer_enqueue: Mapping[int, int]
    peer_seconds: float
    pick_ups: int
    processes: tuple[int, ...]
    nodes: tuple[int, ...]
    fleet_tasks: int
    spins: int
    naps: int
    idle_settling: float
    idle_seconds: float
    shapes: float
    shape_claims: int


ALL = (
    "enqueue", "hold", "drain", "peers", "cores", "pick-up", "processes", "nodes", "fairness", "idle", "shapes",
    "beside",
)  # fmt: skip
"""Every measurement, in the order in which they are taken."""

FULL = Sizes(
    rounds=3,
    on=("sqlite", "sqlite-normal", "mariadb", "mariadb-mysqlclient", "mysql", "mysql-mysqlclient", "postgresql"),
    only=ALL,
    enqueue={1: 2_000, 1000: 10_000},
    hold={1: 200, 10: 1_500, 100: 6_000, 1000: 20_000},
    drain={10: 20_000, 100: 40_000, 1000: 40_000},
    peer_enqueue={1: 200, 1000: 2_000},
    peer_seconds=2.0,
    pick_ups=40,
    processes=(1, 2, 4, 8, 16, 30),
    nodes=(1, 2, 4, 8),
    fleet_tasks=200_000,
    spins=2_000,
    naps=60,
    idle_settling=35.0,
    idle_seconds=60.0,
    shapes=1.0,
    shape_claims=300,
)
QUICK = Sizes(
    rounds=4,
    on=("sqlite", "mariadb-mysqlclient", "mysql-mysqlclient", "postgresql"),
    only=("enqueue", "hold", "drain", "peers"),
    enqueue={1: 300, 1000: 5_000},
    hold={10: 500, 100: 3_000},
    drain={10: 500, 100: 3_000},
    peers=("huey_sql", "huey_sqlite", "pgqueuer"),
    peer_enqueue={1: 200, 1000: 500},
    peer_seconds=0.4,
    pick_ups=8,
    processes=(1, 2, 4),
    nodes=(1, 2),
    fleet_tasks=3_000,
    spins=800,
    naps=12,
    idle_settling=35.0,
    idle_seconds=30.0,
    shapes=0.01,
    shape_claims=60,
)
TINY = Sizes(
    rounds=1,
    on=("sqlite", "sqlite-normal", "mariadb", "mariadb-mysqlclient", "mysql", "mysql-mysqlclient", "postgresql"),
    only=ALL,
    enqueue={1: 3, 1000: 20},
    hold={1: 3, 10: 20, 100: 20},
    drain={10: 30},
    peers=(),
    peer_enqueue={1: 3, 1000: 20},
    peer_seconds=0.02,
    pick_ups=1,
    processes=(1, 2),
    nodes=(2,),
    fleet_tasks=40,
    spins=20,
    naps=2,
    idle_settling=5.0,
    idle_seconds=6.0,
    shapes=0.00002,
    shape_claims=3,
)
"""To see that it works, as the tests do, which have no peers; its figures say nothing."""

BY_NAME = {"full": FULL, "quick": QUICK, "tiny": TINY}
