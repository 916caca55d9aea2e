"""Exit statuses of peerd's own processes, as a process sets them and the master reads them."""

from __future__ import annotations

from typing import Final

OK: Final = 0  # ended by itself, or stopped on request
REFUSED: Final = 1  # the master cannot carry out its plan, or cannot work in its run directory
BOOT_FAILED: Final = 3  # a process could not become ready; also of the master when a first boot fails
ALREADY_RUNNING: Final = 4  # another master runs in the run directory
CRASHED: Final = 70  # an exception ended the process, or tainted it (sysexits' EX_SOFTWARE)
RECYCLED: Final = 75  # the process asked for a fresh one in its place (sysexits' EX_TEMPFAIL)
MASTER_LOST: Final = 110  # the master was gone before the process had started
OUT_OF_TIME: Final = 124  # the process did not end within its grace and ended itself by force (as timeout(1) does)
