"""Run campaigns, print what they showed, and draw it: `python -m tests.faults --help`."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.faults import campaign, history, outage_usage, plot, report
from tests.faults.campaign import CampaignPlan
from tests.faults.fault_injector import FaultRates
from tests.support.server_kinds import SERVERS

KINDS = ("sqlite", *SERVERS, "pooled-postgresql")
A_MINUTE = 60.0
LONG = 240.0
"""Seconds of a campaign that has room for an outage of a minute."""
OUTAGE_FOR_A_MINUTE: Final = 30.0
SHORTEST_OUTAGE: Final = 20.0
LONGEST_OUTAGE: Final = 600.0
"""Seconds of the outage in which a node's processes are watched: so many for each minute of faults, within these."""


def main() -> int:
    """Run one campaign on each database; 1 if there was a problem."""
    given = arguments()
    print(f"seed {given.seed}", flush=True)
    results = []
    for kind in given.kinds:
        folder = Path(tempfile.mkdtemp(prefix=f"peerd-faults-{kind}-", dir=given.keep_in))
        os.environ[history.VARIABLE] = str(folder / "history")
        result = campaign.run(plan_of(given, kind), folder)
        results.append(result)
        print(report.words(result), flush=True)
        if given.plots:
            given.plots.mkdir(parents=True, exist_ok=True)
            plot.draw(result, given.plots / f"faults-{kind}.svg")
        if result.is_good and not given.keep:
            shutil.rmtree(folder)
        else:
            print(f"history and logs: {folder}", flush=True)
    print(report.table(results))
    are_outages_good = [watch_outage(kind, given.minutes) for kind in given.kinds if kind in SERVERS]
    return 0 if all(result.is_good for result in results) and all(are_outages_good) else 1


def watch_outage(kind: str, minutes: float) -> bool:
    """Take a server away for a good while, and watch what the processes of a node use; whether that was well."""
    seconds = min(max(minutes * OUTAGE_FOR_A_MINUTE, SHORTEST_OUTAGE), LONGEST_OUTAGE)
    outage = outage_usage.run(kind, seconds)
    print(outage, flush=True)
    return not outage.problems


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"databases: {', '.join(KINDS)} (default: all)")
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults, for each database")
    parser.add_argument("--tasks", type=int, help="on each database (default: 36 a second)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--plots", type=Path, help="a folder for the plots")
    parser.add_argument("--keep", action="store_true", help="keep the history, even where nothing was wrong")
    parser.add_argument("--keep-in", type=Path, help="where histories lie (default: the temporary folder)")
    given = parser.parse_args()
    given.kinds = given.kinds or list(KINDS)
    if unknown := set(given.kinds) - set(KINDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    return given


def plan_of(given: argparse.Namespace, kind: str) -> CampaignPlan:
    """The campaign of the command line."""
    seconds = given.minutes * 60.0
    return CampaignPlan(
        kind=kind,
        seconds=seconds,
        tasks=given.tasks or round(36 * seconds),
        seed=given.seed,
        rates=FaultRates(long_outage=A_MINUTE if seconds >= LONG else None),
        ends_within=max(300.0, 2 * seconds),
    )


if __name__ == "__main__":
    sys.exit(main())
