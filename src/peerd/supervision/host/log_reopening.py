"""The node's log file, as the master sees it: it opens the file anew, and tells every child to."""

from __future__ import annotations

from peerd.runtime.observability import logfile
from peerd.supervision.console import Console
from peerd.supervision.processes.process_table import ProcessTable


class LogReopener:
    """What is written where, of all processes of a node.

    Args:
        file: the log; None where the node writes to what it was started with, a terminal or the journal.
        table: the processes.
        console: where people read.
    """

    def __init__(self, file: str | None, table: ProcessTable, console: Console) -> None:
        self._file = file
        self._table = table
        self._console = console

    def reopen(self) -> str:
        """Open the log anew, here and in every child; return what went wrong, in words, or nothing."""
        if self._file is None:
            return "this node has no log file: it writes to what it was started with"
        try:
            logfile.redirect_output(self._file)
        except OSError as error:
            problem = f"cannot reopen the log, and goes on in the old one: {error}"
            self._console.log(problem, level="error")
            return problem
        for process in self._table.processes():
            process.link.send({"type": "reopen-logs", "file": self._file})
        return ""
