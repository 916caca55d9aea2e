"""Exit statuses of peerd's own processes, as a process sets them and the master reads them."""

from __future__ import annotations

from typing import Final

OK: Final = 0
"""Ended by itself, or stopped on request."""
REFUSED: Final = 1
"""The master cannot carry out its plan, or cannot work in its run directory."""
BOOT_FAILED: Final = 3
"""A process could not become ready; also of the master when a first boot fails."""
ALREADY_RUNNING: Final = 4
"""Another master runs in the run directory."""
CRASHED: Final = 70
"""An exception ended the process, or tainted it (sysexits' EX_SOFTWARE)."""
RECYCLED: Final = 75
"""The process asked for a fresh one in its place (sysexits' EX_TEMPFAIL)."""
MASTER_LOST: Final = 110
"""The master was gone before the process had started."""
OUT_OF_TIME: Final = 124
"""The process did not end within its grace and ended itself by force (as timeout(1) does)."""
