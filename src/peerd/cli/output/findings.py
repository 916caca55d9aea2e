"""Findings for people: a line for each, coloured by its level, and below it the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich.text import Text

from peerd.cli.output.formatting import sanitize
from peerd.operate.diagnostics import Finding, Level
from peerd.operate.diagnostics.finding import Verdict

LEVEL_STYLES: Final = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
VERDICT_STYLES: Final = {Verdict.GREEN: "green", Verdict.YELLOW: "yellow", Verdict.RED: "bold red"}


def finding_lines(findings: Iterable[Finding]) -> Iterator[Text]:
    """The lines of findings, the worst at the end, where a terminal shows it."""
    for finding in sorted(findings, key=lambda finding: finding.level.weight):
        word = Text(f"{finding.level:>9}  ", LEVEL_STYLES[finding.level])
        yield Text.assemble(word, (finding.subject, "bold"), "  ", sanitize(finding.message))
        if finding.remedy:
            yield Text.assemble(" " * 11, ("try: ", "bright_black"), sanitize(finding.remedy))
