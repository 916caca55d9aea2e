"""At the end of a run: how many tests ran on each database, how many were skipped without a server, what tests have to
report, where the time went, and how much of the budget the run has used.

A test notes it among its report's properties, so that this works with xdist too.
"""

from __future__ import annotations

import resource
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import pytest

BUDGET = 8 * 60.0
"""Seconds that the tests without the slow ones may take on two idle cores."""
BUDGET_OF_ALL = 25 * 60.0
"""Seconds that all tests may take there."""
_RAN_ON = "database"
_MISSING = "missing_server"
_LINE = "line:"
_PROCESSOR = "processor"
_BEFORE = pytest.StashKey[float]()
MOST_SUBJECTS = 12
"""Folders of tests that the table of times shows."""


def note_database(item: pytest.Item, kind: str) -> None:
    """This test has a real database of this kind."""
    if (_RAN_ON, kind) not in item.user_properties:
        item.user_properties.append((_RAN_ON, kind))


def note_missing_server(item: pytest.Item, kind: str) -> None:
    """This test is skipped because no such server is installed."""
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
    """Seconds of this process, and of the processes that it started and that have ended."""
    used = (resource.getrusage(target) for target in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


class Summary:
    """Counts reports on the controller, and prints the counts."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.began = time.monotonic()
        self.tests: Counter[str] = Counter()
        self.waited: defaultdict[str, float] = defaultdict(float)
        self.processor: defaultdict[str, float] = defaultdict(float)
        self.lines: dict[str, list[str]] = {}
        self.ran: Counter[str] = Counter({"sqlite": 0, "mariadb": 0, "postgresql": 0})
        self.missing: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note_time(report)
        if report.when == "call" and not report.skipped:
            self.ran.update(str(kind) for name, kind in report.user_properties if name == _RAN_ON)
        elif report.skipped:
            self.missing.update(str(kind) for name, kind in report.user_properties if name == _MISSING)
        if report.when == "call":
            for name, line in report.user_properties:
                if name.startswith(_LINE):
                    self.lines.setdefault(name.removeprefix(_LINE), []).append(str(line))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for section, lines in sorted(self.lines.items()):
            terminalreporter.section(section)
            for line in sorted(lines):
                terminalreporter.write_line(line)
        self._summarise_databases(terminalreporter)
        self._summarise_time(terminalreporter)

    def _note_time(self, report: pytest.TestReport) -> None:
        subject = "/".join(report.nodeid.partition("::")[0].split("/")[:2])
        self.waited[subject] += report.duration
        if report.when == "teardown":
            self.tests[subject] += 1
            used = sum(float(str(value)) for name, value in report.user_properties if name == _PROCESSOR)
            self.processor[subject] += used

    def _summarise_databases(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.ran.total() and not self.missing.total():
            return
        terminalreporter.section("databases")
        for kind, number in self.ran.items():
            line = f"{kind:<12}{number:>6} tests ran"
            if self.missing[kind]:
                line += f", {self.missing[kind]} SKIPPED: the server is not installed"
            terminalreporter.write_line(line, yellow=bool(self.missing[kind]))

    def _summarise_time(self, terminalreporter: pytest.TerminalReporter) -> None:
        taken = time.monotonic() - self.began
        terminalreporter.section("time")
        terminalreporter.write_line(f"{'':<24}{'tests':>7}{'seconds':>9}{'of a processor':>16}")
        for subject, seconds in sorted(self.waited.items(), key=lambda one: -one[1])[:MOST_SUBJECTS]:
            line = f"{subject:<24}{self.tests[subject]:>7}{seconds:>9.0f}{self.processor[subject]:>16.0f}"
            terminalreporter.write_line(line)
        words = f"all of it: {minutes(taken)}; the budget on two idle cores is {minutes(self.budget)}"
        terminalreporter.write_line(words, yellow=taken > self.budget)


def minutes(seconds: float) -> str:
    """Seconds as minutes and seconds.

    >>> minutes(481.4)
    '8:01 min'
    """
    whole, rest = divmod(round(seconds), 60)
    return f"{whole}:{rest:02} min"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        budget = BUDGET if "not slow" in config.option.markexpr else BUDGET_OF_ALL
        config.pluginmanager.register(Summary(budget), "peerd-summary")
