"""How many descriptors the processes of a node may have open."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

TARGET_SOFT_LIMIT: Final = 65_536
"""The soft limit that is aimed at: tens of thousands of connections for each web process. Hard limits of containers can
be a billion, and some programs walk through all numbers up to their limit when they start."""


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process, and of all that it starts, to the hard one, at most to `TARGET_SOFT_LIMIT`.

    The soft limit is 1024 on most systems for the sake of programs that use select(2) (systemd's file-hierarchy of
    limits: https://0pointer.net/blog/file-descriptor-limits.html); a web process would refuse its 1000th connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = TARGET_SOFT_LIMIT if hard == resource.RLIM_INFINITY else min(hard, TARGET_SOFT_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # it goes on with what it has
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
