"""Exit statuses of peerd's own processes, in one place so that both ends of a death agree on its meaning."""

from __future__ import annotations

from typing import Final

OK: Final = 0
"""Left by its own will, or stopped as asked."""

REFUSED: Final = 1
"""The master cannot carry out its plan, or cannot work in its run directory."""

BOOT_FAILED: Final = 3
"""A process could not become ready; the master itself uses it when a first boot fails."""

ALREADY_RUNNING: Final = 4
"""The master found another one at work in its run directory."""

CRASHED: Final = 70
"""An exception ended the process, or tainted it (sysexits' EX_SOFTWARE)."""

RECYCLED: Final = 75
"""The process asked to be replaced by a fresh one (sysexits' EX_TEMPFAIL)."""

MASTER_LOST: Final = 110
"""The master was gone before the process had begun."""

OUT_OF_TIME: Final = 124
"""The process did not end within its grace and ended itself the hard way (as timeout(1) does)."""
