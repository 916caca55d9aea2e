"""At the end of a run: how many tests ran on each database, how many could not for want of a server, and what tests
have to report.

A test notes it among its report's properties, so that this works with xdist too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

_RAN_ON = "database"
_MISSING = "missing_server"
_LINE = "line:"


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


class Summary:
    """Counts reports on the controller, and words the counts."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.ran: Counter[str] = Counter({"sqlite": 0, "mariadb": 0, "postgresql": 0})
        self.missing: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
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

    def _summarise_databases(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.ran.total() and not self.missing.total():
            return
        terminalreporter.section("databases")
        for kind, number in self.ran.items():
            line = f"{kind:<12}{number:>6} tests ran"
            if self.missing[kind]:
                line += f", {self.missing[kind]} SKIPPED: the server is not installed"
            terminalreporter.write_line(line, yellow=bool(self.missing[kind]))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(), "peerd-summary")
