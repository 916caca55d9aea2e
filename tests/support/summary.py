"""At the end of a run: how many tests ran on each database, how many were skipped without a server, what tests have to
report, where the time went beside the budget of each folder, and the tests that were dearest.

A test notes it among its report's properties, so that this works with xdist too.
"""

from __future__ import annotations

import heapq
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import pytest

from tests.support import server_session
from tests.support.tiers import MINUTES, budget_of, folder_of, is_quick

_RAN_ON = "database"
_MISSING = "missing_server"
_LINE = "line:"
_PROCESSOR = "processor"
_BEFORE = pytest.StashKey[float]()
DEAREST = 10


def note_database(item: pytest.Item, kind: str) -> None:
    if (_RAN_ON, kind) not in item.user_properties:
        item.user_properties.append((_RAN_ON, kind))


def note_missing_server(item: pytest.Item, kind: str) -> None:
    item.user_properties.append((_MISSING, kind))


@pytest.fixture
def record_line(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``record_line(section, line)``: a line of a table that is printed at the end of the run."""
    properties = request.node.user_properties
    return lambda section, line: properties.append((_LINE + section, line))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEFORE] = _processor_time()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        item.user_properties.append((_PROCESSOR, _processor_time() - item.stash[_BEFORE]))


def _processor_time() -> float:
    used = (resource.getrusage(target) for target in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


class Summary:
    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.began = time.monotonic()
        self.tests: Counter[str] = Counter()
        self.waited: defaultdict[str, float] = defaultdict(float)
        self.processor: defaultdict[str, float] = defaultdict(float)
        self.dearest: list[tuple[float, float, str]] = []
        self.lines: defaultdict[str, list[str]] = defaultdict(list)
        self.ran: Counter[str] = Counter({"sqlite": 0, "mariadb": 0, "mysql": 0, "postgresql": 0})
        self.missing: Counter[str] = Counter()
        self._durations: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = folder_of(report.nodeid)
        self.waited[folder] += report.duration
        self._durations[report.nodeid] += report.duration
        if report.when != "teardown":
            return
        self.tests[folder] += 1
        for name, value in report.user_properties:
            if name == _RAN_ON:
                self.ran[str(value)] += 1
            elif name == _MISSING:
                self.missing[str(value)] += 1
            elif name == _PROCESSOR:
                used = float(str(value))
                self.processor[folder] += used
                self.dearest.append((used, self._durations.pop(report.nodeid), report.nodeid))
            elif name.startswith(_LINE):
                self.lines[name.removeprefix(_LINE)].append(str(value))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for section, lines in sorted(self.lines.items()):
            terminalreporter.section(section)
            for line in sorted(lines):
                terminalreporter.write_line(line)
        if self.ran.total() or self.missing.total():
            self._summarise_databases(terminalreporter)
        self._summarise_time(terminalreporter)

    def _summarise_databases(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("databases")
        for kind in {**self.ran, **self.missing}:
            number = self.ran[kind]
            line = f"{kind:<18}{number:>6} tests ran"
            if self.missing[kind]:
                line += f", {self.missing[kind]} SKIPPED: the server is not at hand"
            terminalreporter.write_line(line, yellow=bool(self.missing[kind]))

    def _summarise_time(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"the {DEAREST} dearest tests")
        for used, seconds, nodeid in heapq.nlargest(DEAREST, self.dearest):
            terminalreporter.write_line(f"{used:>7.1f} s of a processor {seconds:>7.1f} s  {nodeid}")
        terminalreporter.section("time")
        terminalreporter.write_line(f"{'':<20}{'tests':>7}{'seconds':>9}{'of a processor':>16}{'budget':>8}")
        for folder, used in sorted(self.processor.items(), key=lambda one: -one[1]):
            budget = budget_of(folder, quick=self.quick)
            line = f"{folder:<20}{self.tests[folder]:>7}{self.waited[folder]:>9.0f}{used:>16.0f}{budget or '':>8}"
            terminalreporter.write_line(line, yellow=budget is not None and used > budget)
        taken, used = time.monotonic() - self.began, _processor_time() + server_session.processor_time_of_servers()
        terminalreporter.write_line(
            f"all of it: {minutes(taken)} of {minutes(MINUTES[self.quick] * 60)}, and {used:.0f} s of a processor of "
            f"{MINUTES[self.quick] * 120}, which two idle cores have in this time",
            yellow=taken > MINUTES[self.quick] * 60,
        )


def minutes(seconds: float) -> str:
    """Seconds as minutes and seconds."""
    whole, rest = divmod(round(seconds), 60)
    return f"{whole}:{rest:02} min"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(quick=is_quick(config)), "peerd-summary")
