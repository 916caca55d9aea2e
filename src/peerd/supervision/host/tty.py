"""Whether this process was started at a terminal, and whether that is gone: SIGHUP means different things then."""

from __future__ import annotations

import os


def has_controlling_tty() -> bool:
    """Return whether the process has a controlling terminal that can be used."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
