"""The plot of a campaign: how many tasks had ended when, and what was done to nodes and database meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from tests.faults import history
from tests.faults.campaign import CampaignResult
from tests.faults.history import HistoryEvent

FINISHED: Final = ("done", "dead", "canceled")
FAULT_ROWS: Final = (
    ("a process killed", ("kill worker", "kill agent", "kill manager", "kill master"), "tab:red"),
    ("a node killed", ("kill node",), "darkred"),
    ("frozen", ("freeze worker", "freeze agent", "freeze manager", "freeze node"), "tab:blue"),
    ("one node cut off", ("cut off",), "tab:cyan"),
    ("answers lost, slow", ("lose replies", "slow network", "cut connections"), "tab:olive"),
    ("database away", ("kill server", "freeze server", "outage", "full disk", "locked database"), "tab:orange"),
)
"""What each row of faults is called, which kinds it shows (by how they begin), and its colour."""
DATABASE_AWAY_ROW: Final = FAULT_ROWS[-1]
SECOND: Final = 1e9


def draw(result: CampaignResult, file: Path) -> None:
    """Draw a campaign.

    Args:
        result: its history must be there still.
        file: its name says the format (SVG, PNG).
    """
    events = history.read(result.history)
    samples = _samples(result.history)
    start = samples[0]["at"] / SECOND
    figure, (upper, middle, lower) = plt.subplots(
        3, 1, sharex=True, figsize=(10, 7), height_ratios=(3, 0.8, 1.4), layout="constrained"
    )
    _draw_tasks(upper, samples, start)
    _draw_processes(middle, samples, start)
    _draw_faults(upper, lower, list(_intervals(events, start)), (samples[-1]["at"] / SECOND) - start)
    upper.set_title(f"{result.plan.kind}: {result.plan.tasks} tasks, three nodes, seed {result.plan.seed}")
    mpl.rcParams |= {"svg.hashsalt": "peerd", "svg.fonttype": "none"}
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None, dpi=110)
    plt.close(figure)


def _draw_tasks(axes: Axes, samples: Sequence[dict[str, Any]], start: float) -> None:
    """Tasks accepted and ended; where the table could not be read, the line has a gap."""
    for kept, nothing in pairwise(samples):
        if nothing["at"] - kept["at"] > 5 * SECOND:
            kept["gap"] = True
    for name, colour, statuses in (("accepted", "tab:gray", None), ("ended", "tab:green", FINISHED)):
        times, values = [], []
        for sample in samples:
            times.append(sample["at"] / SECOND - start)
            counts = sample["counts"]
            values.append(float(sum(counts.get(status, 0) for status in statuses or counts)))
            if sample.get("gap"):
                times.append(times[-1])
                values.append(float("nan"))
        axes.plot(times, values, label=name, color=colour)
    axes.set_ylabel("tasks")
    axes.legend(loc="upper left")
    axes.grid(visible=True, alpha=0.3)


def _draw_processes(axes: Axes, samples: Sequence[dict[str, Any]], start: float) -> None:
    """How many of the nodes' processes had booted and ran, of those that there are when all is well."""
    times = [sample["at"] / SECOND - start for sample in samples]
    running = [float(sample["slots"].get("RUNNING", 0)) for sample in samples]
    axes.fill_between(times, running, step="post", color="tab:purple", alpha=0.5, linewidth=0)
    axes.set_ylim(0, max(running, default=1.0))
    axes.set_ylabel("processes")


def _draw_faults(upper: Axes, lower: Axes, faults: Sequence[tuple[str, float, float]], end: float) -> None:
    for row, (_, kinds, colour) in enumerate(FAULT_ROWS):
        shown = [(begin, until) for kind, begin, until in faults if kind.startswith(kinds)]
        bars = [(begin, max(until - begin, end / 600)) for begin, until in shown]
        lower.broken_barh(bars, (-row - 0.4, 0.8), color=colour)
        if kinds is DATABASE_AWAY_ROW[1]:
            for begin, until in shown:
                upper.axvspan(begin, until, color=colour, alpha=0.15, linewidth=0)
    lower.set_yticks([-row for row in range(len(FAULT_ROWS))], [name for name, _, _ in FAULT_ROWS])
    lower.set_xlabel("seconds")
    lower.set_xlim(0, end)


def _intervals(events: Iterable[HistoryEvent], start: float) -> Iterable[tuple[str, float, float]]:
    """Each fault: its kind, and from when to when; a kill is a moment."""
    still: dict[tuple[str, str], float] = {}
    for event in events:
        at = event.at / SECOND - start
        if event.event == "fault" and event.effect == "dead":
            yield event.kind, at, at
        elif event.event == "fault":
            still[event.kind, event.target] = at
        elif event.event == "healed" and (event.kind, event.target) in still:
            yield event.kind, still.pop((event.kind, event.target)), at


def _samples(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_bytes().splitlines() if b'"sample"' in line]
    return sorted((json.loads(line) for line in lines), key=lambda sample: int(sample["at"]))
