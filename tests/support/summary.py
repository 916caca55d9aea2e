"""At the end of a run: how many tests ran on each database, and how many could not for want of a server.

The test notes what it really used among its report's properties, so that this works with xdist too.
"""

from __future__ import annotations

from collections import Counter

import pytest

_RAN_ON = "database"
_MISSING = "missing_server"


def note_database(item: pytest.Item, kind: str) -> None:
    """This test has a real database of this kind."""
    if (_RAN_ON, kind) not in item.user_properties:
        item.user_properties.append((_RAN_ON, kind))


def note_missing_server(item: pytest.Item, kind: str) -> None:
    """This test is skipped because no such server is installed."""
    item.user_properties.append((_MISSING, kind))


class DatabaseSummary:
    """Counts reports on the controller, and words the counts."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter({"sqlite": 0, "mariadb": 0, "postgresql": 0})
        self.missing: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and not report.skipped:
            self.ran.update(str(kind) for name, kind in report.user_properties if name == _RAN_ON)
        elif report.skipped:
            self.missing.update(str(kind) for name, kind in report.user_properties if name == _MISSING)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
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
        config.pluginmanager.register(DatabaseSummary(), "peerd-database-summary")
