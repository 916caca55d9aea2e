"""The address of a unix socket in a folder, short enough for the kernel however long the folder's path is.

A socket's address may be at most about 100 bytes long, and a run directory's path is often longer; so it is reached
through an open file descriptor of the folder, whose path under /proc is short. (A second place, below the temp folder,
would depend on TMPDIR and PrivateTmp being the same for the service and for the person who asks.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_socket_directory(folder: str | Path) -> Iterator[Path]:
    """Give a short path of a folder, good in this process while the context lasts.

    Raises:
        OSError: the folder cannot be opened.

    Example:
        >>> with short_socket_directory("/") as short:
        ...     (short / "etc").is_dir()
        True
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
